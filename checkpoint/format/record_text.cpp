#include "checkpoint/format/record_text.hpp"

#include <fmt/format.h>

#include <cstddef>
#include <iterator>
#include <limits>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "storage/files/untrusted_text.hpp"

namespace train::checkpoint {
namespace {

constexpr std::size_t kRankLimit = 32;
constexpr storage::JsonLimits kTextLimits = {.bytes = kManifestTextLimit,
                                             .values = kTensorRecordLimit * 32,
                                             .run = std::size_t{1} << 20,
                                             .depth = 16};

/// Memory of the texts below: a type of this source alone.
template <class T>
struct OwnMemory {
  using value_type = T;

  OwnMemory() = default;
  template <class Other>
  OwnMemory(const OwnMemory<Other>& /*other*/) {}  // NOLINT: implicit, as of any allocator

  T* allocate(std::size_t count) { return std::allocator<T>().allocate(count); }
  void deallocate(T* values, std::size_t count) { std::allocator<T>().deallocate(values, count); }
  bool operator==(const OwnMemory&) const = default;
};

/// Text that the parser appends each letter to. The functions of std::string stand in many sources,
/// some compiled without an optimizer, of which the linker takes any: half of a manifest's time.
using OwnText = std::basic_string<char, std::char_traits<char>, OwnMemory<char>>;
using Json = nlohmann::basic_json<std::map, std::vector, OwnText>;

/// Value of a member: text, a count, or a list named by the member.
enum class List : std::uint8_t { files, tensors, shape };
using Target = std::variant<std::string*, std::int64_t*, std::uint64_t*, List>;

struct Member {
  std::string_view key;
  Target target;
  bool required = true;
  bool seen = false;
};

const char* wanted_kind(const Target& target) {
  switch (target.index()) {
    case 0:
      return "is no string";
    case 3:
      return "is no array";
    default:
      return "is no whole number >= 0";
  }
}

/// Receives the events of nlohmann's SAX parser. Records the first defect and continues, so that
/// the version of another format can still be read.
class RecordsHandler : public nlohmann::json_sax<Json> {
 public:
  explicit RecordsHandler(std::span<const WantedMember> wanted) {
    for (const WantedMember& member : wanted) {
      std::visit(
          [&](auto* target) {
            top_.push_back({member.key, target, member.required});
          },
          member.target);
    }
    top_.push_back({"files", List::files});
    top_.push_back({"tensors", List::tensors});
  }

  bool null() override { return other(); }
  bool boolean(bool) override { return other(); }
  bool number_integer(number_integer_t) override { return other(); }
  bool number_float(number_float_t, const string_t&) override { return other(); }
  bool binary(binary_t&) override { return other(); }

  bool number_unsigned(number_unsigned_t value) override {
    if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
      return other();
    }
    if (skipped_ == 0 && place_ == Place::shape) {
      auto& shape = found_.tensors.back().shape;
      shape.size() < kRankLimit ? shape.push_back(static_cast<std::int64_t>(value))
                                : note("has too many dimensions");
      return true;
    }
    if (skipped_ == 0 && in_object() && member_ != nullptr) {
      if (auto* const* count = std::get_if<std::int64_t*>(&member_->target)) {
        **count = static_cast<std::int64_t>(value);
        return true;
      }
      if (auto* const* count = std::get_if<std::uint64_t*>(&member_->target)) {
        **count = value;
        return true;
      }
    }
    return other();
  }

  bool string(string_t& value) override {
    if (skipped_ == 0 && in_object() && member_ != nullptr) {
      if (auto* const* text = std::get_if<std::string*>(&member_->target)) {
        (*text)->assign(value.data(), value.size());
        (*text)->shrink_to_fit();
        return true;
      }
    }
    return other();
  }

  bool key(string_t& value) override {
    if (skipped_ > 0) {
      return true;
    }
    member_ = nullptr;
    for (Member& member : place_ == Place::top ? top_ : members_) {
      if (member.key == std::string_view(value)) {
        member_ = &member;
        if (std::exchange(member.seen, true)) {
          note("stands twice");
        }
      }
    }
    return true;
  }

  bool start_object(std::size_t) override {
    if (skipped_ > 0 || in_object() || place_ == Place::shape) {
      return open_other();
    }
    switch (place_) {
      case Place::files:
        return open_file();
      case Place::tensors:
        return open_tensor();
      default:
        place_ = Place::top;
        return true;
    }
  }

  bool end_object() override {
    if (skipped_ > 0) {
      --skipped_;
      return true;
    }
    member_ = nullptr;
    for (const Member& member : place_ == Place::top ? top_ : members_) {
      if (member.required && !member.seen && found_.defect.empty()) {
        found_.defect = fmt::format("{}{} is missing", place_text(), member.key);
      }
    }
    place_ = place_ == Place::file     ? Place::files
             : place_ == Place::tensor ? Place::tensors
                                       : Place::outside;
    return true;
  }

  bool start_array(std::size_t) override {
    const List* list = skipped_ == 0 && in_object() && member_ != nullptr
                           ? std::get_if<List>(&member_->target)
                           : nullptr;
    if (list == nullptr) {
      return open_other();
    }
    place_ = *list == List::files     ? Place::files
             : *list == List::tensors ? Place::tensors
                                      : Place::shape;
    if (place_ != Place::shape) {
      member_ = nullptr;
    }
    return true;
  }

  bool end_array() override {
    if (skipped_ > 0) {
      --skipped_;
      return true;
    }
    place_ = place_ == Place::shape ? Place::tensor : Place::top;
    return true;
  }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    found_.defect = fmt::format("not JSON at byte {}", position);
    return false;
  }

  RecordsFound& found() { return found_; }

 private:
  enum class Place : std::uint8_t { outside, top, files, tensors, file, tensor, shape };

  [[nodiscard]] bool in_object() const {
    return place_ == Place::top || place_ == Place::file || place_ == Place::tensor;
  }

  bool open_file() {
    if (found_.files.size() == kFileRecordLimit) {
      return too_many("files", kFileRecordLimit);
    }
    FileRecord& file = found_.files.emplace_back();
    place_ = Place::file;
    member_ = nullptr;
    members_ = {{"name", &file.name}, {"size", &file.size_bytes}, {"digest", &file.digest}};
    return true;
  }

  bool open_tensor() {
    if (found_.tensors.size() == kTensorRecordLimit) {
      return too_many("tensors", kTensorRecordLimit);
    }
    TensorRecord& tensor = found_.tensors.emplace_back();
    place_ = Place::tensor;
    member_ = nullptr;
    members_ = {{"name", &tensor.name},           {"dtype", &tensor.dtype},
                {"shape", List::shape},           {"file", &tensor.file},
                {"first_row", &tensor.first_row}, {"rows", &tensor.rows},
                {"digest", &tensor.digest},       {"block_bytes", &tensor.block_bytes, false},
                {"blocks", &tensor.blocks, false}};
    return true;
  }

  bool too_many(std::string_view list, std::size_t limit) {
    found_.defect = fmt::format("more than {} {}", limit, list);
    return false;
  }

  /// Handles a value that is not allowed here, or is not wanted.
  bool other() {
    if (skipped_ > 0) {
      return true;
    }
    switch (place_) {
      case Place::files:
      case Place::tensors:
        note_element();
        return true;
      case Place::shape:
        note("holds no whole number >= 0");
        return true;
      case Place::outside:
        note("the text is not a JSON object");
        return true;
      default:
        if (member_ != nullptr) {
          note(wanted_kind(member_->target));
        }
        return true;
    }
  }
  bool open_other() {
    other();
    ++skipped_;
    return true;
  }

  [[nodiscard]] std::string place_text() const {
    switch (place_) {
      case Place::file:
        return fmt::format("files[{}].", found_.files.size() - 1);
      case Place::tensor:
      case Place::shape:
        return fmt::format("tensors[{}].", found_.tensors.size() - 1);
      default:
        return {};
    }
  }
  void note(std::string_view what) {
    if (found_.defect.empty()) {
      found_.defect = fmt::format("{}{} {}", place_text(),
                                  member_ != nullptr ? member_->key : std::string_view(), what);
    }
  }
  void note_element() {
    if (found_.defect.empty()) {
      const bool files = place_ == Place::files;
      found_.defect = fmt::format("{}[{}]. is not an object", files ? "files" : "tensors",
                                  files ? found_.files.size() : found_.tensors.size());
    }
  }

  RecordsFound found_;
  Place place_ = Place::outside;
  std::size_t skipped_ = 0;  ///< Open brackets of a skipped value.
  std::vector<Member> top_;
  std::vector<Member> members_;  ///< Members of the current record.
  Member* member_ = nullptr;     ///< Member whose value comes next; nullptr: an unknown key.
};

/// Goes through a text. A type of this source alone has a parser of its own, compiled as this
/// source is: that of `const char*` stands in many, and the linker takes any.
class Letter {
 public:
  using iterator_category = std::forward_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  explicit Letter(const char* at) : at_(at) {}
  reference operator*() const { return *at_; }
  Letter& operator++() {
    ++at_;
    return *this;
  }
  bool operator==(const Letter&) const = default;

 private:
  const char* at_;
};

}  // namespace

std::string json_string(std::string_view text) { return nlohmann::json(text).dump(); }

std::string record_text(const FileRecord& file) {
  return nlohmann::ordered_json(
             {{"name", file.name}, {"size", file.size_bytes}, {"digest", file.digest}})
      .dump();
}

std::string record_text(const TensorRecord& tensor) {
  nlohmann::ordered_json object = {{"name", tensor.name},           {"dtype", tensor.dtype},
                                   {"shape", tensor.shape},         {"file", tensor.file},
                                   {"first_row", tensor.first_row}, {"rows", tensor.rows},
                                   {"digest", tensor.digest}};
  if (tensor.block_bytes > 0) {
    object["block_bytes"] = tensor.block_bytes;
    object["blocks"] = tensor.blocks;
  }
  return object.dump();
}

RecordsFound read_records(std::string_view text, std::span<const WantedMember> wanted) {
  if (std::string excess = storage::json_excess(text, kTextLimits); !excess.empty()) {
    return {.files = {}, .tensors = {}, .defect = std::move(excess)};
  }
  RecordsHandler handler(wanted);
  // Not Json::sax_parse(), which has a reader of binary formats with it, for std::string alone.
  auto letters =
      nlohmann::detail::input_adapter(Letter(text.data()), Letter(text.data() + text.size()));
  nlohmann::detail::parser<Json, decltype(letters)>(std::move(letters)).sax_parse(&handler);
  return std::move(handler.found());
}

}  // namespace train::checkpoint
