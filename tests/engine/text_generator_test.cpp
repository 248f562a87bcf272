#include "engine/model/model_shape.hpp"
#include "engine/generate/text_generator.hpp"

#include <catch2/catch.hpp>

#include "engine/model/initial_weights.hpp"
#include "tests/engine/small_model.hpp"

namespace train::engine {
namespace {

constexpr std::int64_t kContext = 8;
using Tokens = std::vector<std::int32_t>;

/// A small model with its first weights.
class Writer {
 public:
  Writer() : shape_(testing::small_shape(Architecture::enoki)) {
    for (const UnitParameters& unit : describe_units(shape_)) {
      units_.emplace_back(static_cast<std::size_t>(unit.element_count));
      for (const Parameter& parameter : unit.parameters) {
        fill_initial_rows(parameter, shape_, {.seed = 3, .init_std = 0.5}, 0, parameter.rows,
                          std::span(units_.back())
                              .subspan(static_cast<std::size_t>(parameter.offset),
                                       static_cast<std::size_t>(parameter.count())));
        if (parameter.vector) {
          std::fill_n(units_.back().begin() + parameter.offset, parameter.count(), 1.0F);
        }
      }
    }
  }

  /// The likeliest tokens after `prompt`.
  [[nodiscard]] Tokens after(const Tokens& prompt, std::int64_t tokens) const {
    std::vector<const float*> weights;
    for (const auto& unit : units_) {
      weights.push_back(unit.data());
    }
    TextGenerator generator(kernels::cpu_backend(), shape_, kContext, weights);
    const auto stream = kernels::make_inline_stream(1);
    Tokens text;
    generator.generate(*stream,
                       {.prompt = prompt,
                        .tokens = tokens,
                        .vocab = shape_.vocab_size,
                        .sampling = {.temperature = 0.0}},
                       [&text](std::int32_t token) {
                         text.push_back(token);
                         return true;
                       });
    return text;
  }

 private:
  ModelShape shape_;
  std::vector<std::vector<float>> units_;
};

TEST_CASE("text generator: a text longer than the context is continued after its end",
          "[engine][text_generator]") {
  const Writer writer;
  const Tokens end = {5, 17, 2, 40, 33, 8, 1, 25};
  REQUIRE(std::ssize(end) == kContext);
  Tokens longer = {9, 9, 30};
  longer.insert(longer.end(), end.begin(), end.end());
  const Tokens expected = writer.after(end, 6);
  REQUIRE(std::ssize(expected) == 6);
  CHECK(writer.after(longer, 6) == expected);
  // One at a time, each after all that came before.
  Tokens text = end;
  for (const std::int32_t token : expected) {
    CHECK(writer.after(text, 1) == Tokens{token});
    text.push_back(token);
  }
}

}  // namespace
}  // namespace train::engine
