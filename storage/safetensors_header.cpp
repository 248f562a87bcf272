#include "storage/safetensors_header.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "storage/files/untrusted_text.hpp"

namespace train::storage {
namespace {

constexpr std::size_t kRankLimit = 32;
constexpr std::size_t kMetadataLimit = 10'000;
constexpr JsonLimits kHeaderLimits = {.bytes = kHeaderLimitBytes,
                                      .values = kTensorCountLimit * 24,
                                      .run = std::size_t{1} << 20,
                                      .depth = 3};

enum class TensorKey : std::uint8_t { dtype = 1, shape = 2, data_offsets = 4 };
constexpr unsigned kAllTensorKeys = 7;

std::optional<TensorKey> tensor_key(std::string_view key) {
  if (key == "dtype") {
    return TensorKey::dtype;
  }
  if (key == "shape") {
    return TensorKey::shape;
  }
  return key == "data_offsets" ? std::optional(TensorKey::data_offsets) : std::nullopt;
}

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
    if (numbers_.size() == kRankLimit) {
      return stop("an array of more than 32 numbers");
    }
    numbers_.push_back(static_cast<std::int64_t>(value));
    return true;
  }

  bool string(string_t& value) override {
    if (place_ == Place::metadata) {
      header_.metadata[key_] = value;
      return header_.metadata.size() <= kMetadataLimit || stop("more metadata");
    }
    if (place_ == Place::tensor && field_ == TensorKey::dtype) {
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
    if (key_ == "__metadata__") {
      place_ = Place::metadata;
      return !std::exchange(metadata_seen_, true) || stop("metadata again");
    }
    place_ = Place::tensor;
    seen_ = 0;
    if (header_.entries.size() == kTensorCountLimit) {
      return stop(fmt::format("more than {} tensors", kTensorCountLimit));
    }
    header_.entries.emplace_back().name = key_;
    return true;
  }

  bool key(string_t& value) override {
    key_ = value;
    if (place_ == Place::metadata && header_.metadata.contains(value)) {
      return stop("a key twice");
    }
    if (place_ == Place::tensor) {
      const auto field = tensor_key(value);
      if (!field) {
        return stop("an unknown key");
      }
      field_ = *field;
      const auto bit = static_cast<unsigned>(field_);
      if ((seen_ & bit) != 0) {
        return stop("a key twice");
      }
      seen_ |= bit;
    }
    return true;
  }

  bool end_object() override {
    if (place_ == Place::tensor && seen_ != kAllTensorKeys) {
      defect_ = fmt::format("tensor {} lacks dtype, shape or data_offsets",
                            shown(header_.entries.back().name));
      return false;
    }
    place_ = place_ == Place::top ? Place::outside : Place::top;
    return true;
  }

  bool start_array(std::size_t) override {
    if (place_ != Place::tensor || field_ == TensorKey::dtype) {
      return stop("an array");
    }
    numbers_.clear();
    place_ = Place::array;
    return true;
  }

  bool end_array() override {
    TensorEntry& entry = header_.entries.back();
    place_ = Place::tensor;
    if (field_ == TensorKey::shape) {
      entry.shape = numbers_;
      return true;
    }
    if (numbers_.size() != 2) {
      defect_ = fmt::format("data_offsets of tensor {} are not two numbers", shown(entry.name));
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
    defect_ = fmt::format("{}, which the format does not allow (at {})", what, shown(key_));
    return false;
  }

  SafetensorsHeader header_;
  Place place_ = Place::outside;
  std::string key_;
  TensorKey field_ = TensorKey::dtype;
  unsigned seen_ = 0;  ///< Keys seen of the current tensor.
  bool metadata_seen_ = false;
  std::vector<std::int64_t> numbers_;
  std::string defect_;
};

/// Empty if all names are distinct. Memory: a number per entry.
std::string name_defect(std::span<const TensorEntry> entries) {
  std::vector<std::uint32_t> order(entries.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    order[i] = static_cast<std::uint32_t>(i);
  }
  std::sort(order.begin(), order.end(), [entries](std::uint32_t a, std::uint32_t b) {
    return entries[a].name < entries[b].name;
  });
  const auto twice = std::adjacent_find(
      order.begin(), order.end(),
      [entries](std::uint32_t a, std::uint32_t b) { return entries[a].name == entries[b].name; });
  return twice == order.end() ? std::string()
                              : fmt::format("tensor {} twice", shown(entries[*twice].name));
}

std::uint64_t element_bytes(std::string_view dtype) {
  static constexpr std::pair<std::string_view, std::uint64_t> sizes[] = {
      {"F32", 4},  {"F64", 8},     {"F16", 2},     {"BF16", 2},   {"I64", 8}, {"I32", 4},
      {"I16", 2},  {"I8", 1},      {"U64", 8},     {"U32", 4},    {"U16", 2}, {"U8", 1},
      {"BOOL", 1}, {"F8_E4M3", 1}, {"F8_E5M2", 1}, {"F8_E8M0", 1}};
  for (const auto& [name, size] : sizes) {
    if (name == dtype) {
      return size;
    }
  }
  return 0;
}

}  // namespace

Result<SafetensorsHeader> parse_safetensors_header(std::string_view text) {
  // The format requires the object to begin at once; spaces may follow it.
  if (text.empty() || text.front() != '{') {
    return failure("header does not begin with {");
  }
  if (std::string excess = json_excess(text, kHeaderLimits); !excess.empty()) {
    return failure(std::move(excess));
  }
  HeaderHandler handler;
  if (!nlohmann::json::sax_parse(text.begin(), text.end(), &handler)) {
    return failure(handler.defect());
  }
  if (std::string defect = name_defect(handler.header().entries); !defect.empty()) {
    return failure(std::move(defect));
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
