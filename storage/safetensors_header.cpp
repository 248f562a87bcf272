#include "storage/safetensors_header.hpp"

#include <fmt/format.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>

namespace train::storage {
namespace {

constexpr std::size_t rank_limit = 32;

/// Receives the events of nlohmann's SAX parser; returning false stops it with `defect` set.
class HeaderHandler : public nlohmann::json_sax<nlohmann::json> {
 public:
  bool null() override { return stop("a null"); }
  bool boolean(bool) override { return stop("a boolean"); }
  bool number_integer(number_integer_t) override { return stop("a negative number"); }
  bool number_float(number_float_t, const string_t&) override {
    return stop("a number that is no 63-bit integer");
  }
  bool binary(binary_t&) override { return stop("binary data"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (place_ != Place::array) {
      return stop("a number");
    }
    if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
      return stop("a number that is no 63-bit integer");
    }
    if (numbers_.size() == rank_limit) {
      return stop("an array of more than 32 numbers");
    }
    numbers_.push_back(static_cast<std::int64_t>(value));
    return true;
  }

  bool string(string_t& value) override {
    if (place_ == Place::metadata) {
      header_.metadata[key_] = value;
      return true;
    }
    if (place_ == Place::tensor && key_ == "dtype") {
      header_.entries.back().dtype = value;
      return true;
    }
    return stop("a string");
  }

  bool start_object(std::size_t) override {
    if (place_ == Place::outside) {
      place_ = Place::top;
      return true;
    }
    if (place_ != Place::top) {
      return stop("an object");
    }
    keys_.clear();
    place_ = key_ == "__metadata__" ? Place::metadata : Place::tensor;
    if (place_ == Place::tensor) {
      header_.entries.emplace_back().name = key_;
    }
    return true;
  }

  bool key(string_t& value) override {
    auto& seen = place_ == Place::top ? names_ : keys_;
    if (!seen.insert(value).second) {
      defect_ = fmt::format("\"{}\" twice", value);
      return false;
    }
    if (place_ == Place::tensor && value != "dtype" && value != "shape" &&
        value != "data_offsets") {
      defect_ =
          fmt::format("unknown key \"{}\" in tensor \"{}\"", value, header_.entries.back().name);
      return false;
    }
    key_ = value;
    return true;
  }

  bool end_object() override {
    if (place_ == Place::tensor && keys_.size() != 3) {
      defect_ = fmt::format("tensor \"{}\" lacks dtype, shape or data_offsets",
                            header_.entries.back().name);
      return false;
    }
    place_ = place_ == Place::top ? Place::outside : Place::top;
    return true;
  }

  bool start_array(std::size_t) override {
    if (place_ != Place::tensor || key_ == "dtype") {
      return stop("an array");
    }
    numbers_.clear();
    place_ = Place::array;
    return true;
  }

  bool end_array() override {
    TensorEntry& entry = header_.entries.back();
    place_ = Place::tensor;
    if (key_ == "shape") {
      entry.shape = numbers_;
      return true;
    }
    if (numbers_.size() != 2) {
      defect_ = fmt::format("data_offsets of tensor \"{}\" are not two numbers", entry.name);
      return false;
    }
    entry.begin = static_cast<std::uint64_t>(numbers_[0]);
    entry.end = static_cast<std::uint64_t>(numbers_[1]);
    return true;
  }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    defect_ = fmt::format("header is not JSON at byte {}", position);
    return false;
  }

  SafetensorsHeader& header() { return header_; }
  [[nodiscard]] const std::string& defect() const { return defect_; }

 private:
  enum class Place : std::uint8_t { outside, top, metadata, tensor, array };

  bool stop(std::string_view what) {
    defect_ = fmt::format("{} where the format has none (at \"{}\")", what, key_);
    return false;
  }

  SafetensorsHeader header_;
  Place place_ = Place::outside;
  std::string key_;
  std::set<std::string> names_;
  std::set<std::string> keys_;
  std::vector<std::int64_t> numbers_;
  std::string defect_;
};

std::uint64_t element_bytes(std::string_view dtype) {
  static constexpr std::pair<std::string_view, std::uint64_t> sizes[] = {
      {"F32", 4}, {"F64", 8}, {"F16", 2},  {"BF16", 2},    {"I64", 8},
      {"I32", 4}, {"I16", 2}, {"I8", 1},   {"U64", 8},     {"U32", 4},
      {"U16", 2}, {"U8", 1},  {"BOOL", 1}, {"F8_E4M3", 1}, {"F8_E5M2", 1}};
  for (const auto& [name, size] : sizes) {
    if (name == dtype) {
      return size;
    }
  }
  return 0;
}

}  // namespace

Result<SafetensorsHeader> parse_safetensors_header(std::string_view text) {
  // The format wants the object to begin at once; spaces may follow it.
  if (text.empty() || text.front() != '{') {
    return failure("header does not begin with {");
  }
  HeaderHandler handler;
  if (!nlohmann::json::sax_parse(text.begin(), text.end(), &handler)) {
    return failure(handler.defect());
  }
  return std::move(handler.header());
}

std::optional<std::uint64_t> tensor_size_bytes(std::string_view dtype,
                                               std::span<const std::int64_t> shape) {
  std::uint64_t size = element_bytes(dtype);
  if (size == 0) {
    return std::nullopt;
  }
  constexpr auto limit = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  for (const std::int64_t dimension : shape) {
    if (dimension < 0) {
      return std::nullopt;
    }
    const auto factor = static_cast<std::uint64_t>(dimension);
    if (factor != 0 && size > limit / factor) {
      return std::nullopt;
    }
    size *= factor;
  }
  return size;
}

}  // namespace train::storage
