#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/result.hpp"
#include "data/examples/example_encoder.hpp"
#include "data/examples/ordered_workers.hpp"
#include "data/examples/prepare_rows.hpp"
#include "data/tokenizer/tokenizer.hpp"
#include "storage/inputs/input_reader.hpp"

namespace train::data {

/// Place of a line.
struct LinePlace {
  std::size_t input = 0;  ///< Index into the request's inputs.
  std::uint64_t line = 1;
};
using EncodedLine = std::variant<EncodedExample, Dropped>;

/// Reads the lines of all inputs and encodes them on all threads, some MiB at a time.
class ExampleReading {
 public:
  /// Receives every non-blank line, in order.
  using Take = std::function<Status(EncodedLine line, const LinePlace& place)>;

  /// `request` must outlive this object.
  ExampleReading(const PrepareRowsRequest& request, const Tokenizer& tokenizer);

  /// Errors: unreadable inputs; no recognisable example within the first lines (4096, or 4 MiB); a
  /// missing template; errors of `take`.
  Status run(const Take& take, const PrepareProgress& progress);

  // Valid from the first recognised line on.
  [[nodiscard]] ExampleKind kind() const { return parsing_.kind; }
  [[nodiscard]] Packing packing() const { return packing_; }

 private:
  struct Waiting {
    std::string text;
    LinePlace place;
    std::optional<storage::LineFault> fault;
  };
  Status read_input(std::size_t input, const Take& take);
  Status begin();
  [[nodiscard]] Result<ExampleKind> kind_of(const Waiting& line) const;
  [[nodiscard]] Result<ExampleKind> kind_of_first() const;
  Status flush(const Take& take);
  Status encode(unsigned worker, const Waiting& line, EncodedLine& to);
  [[nodiscard]] std::string where(const LinePlace& place) const;

  const PrepareRowsRequest& request_;
  Tokenizer tokenizer_;
  ExampleOptions parsing_;
  Packing packing_ = Packing::bfd;
  std::shared_ptr<const KeywordMask> keywords_;  ///< Null if there are none.
  bool begun_ = false;
  OrderedWorkers workers_;
  std::vector<std::unique_ptr<ExampleEncoder>> encoders_;  ///< One per worker, created at its first
                                                           ///< line.
  std::vector<Waiting> waiting_;
  std::size_t waiting_bytes_ = 0;
  std::uint64_t total_bytes_ = 0;
  std::uint64_t done_bytes_ = 0;
  const PrepareProgress* progress_ = nullptr;
};

}  // namespace train::data
