#include "storage/weight_files/gguf_writer.hpp"

#include <array>
#include <bit>
#include <concepts>
#include <set>
#include <string_view>
#include <type_traits>

#include "base/check.hpp"

namespace train::storage {
namespace {

constexpr std::uint64_t kAlignment = 32;
constexpr std::uint32_t kVersion = 3;

// Codes of types of values in the file.
constexpr std::uint32_t kUint16 = 2;
constexpr std::uint32_t kUint32 = 4;
constexpr std::uint32_t kInt32 = 5;
constexpr std::uint32_t kFloat32 = 6;
constexpr std::uint32_t kBool = 7;
constexpr std::uint32_t kString = 8;
constexpr std::uint32_t kArray = 9;

template <class T>
constexpr std::uint32_t code_of() {
  if constexpr (std::is_same_v<T, bool>) {
    return kBool;
  } else if constexpr (std::is_same_v<T, std::uint16_t>) {
    return kUint16;
  } else if constexpr (std::is_same_v<T, std::uint32_t>) {
    return kUint32;
  } else if constexpr (std::is_same_v<T, std::int32_t>) {
    return kInt32;
  } else if constexpr (std::is_same_v<T, float>) {
    return kFloat32;
  } else {
    static_assert(std::is_same_v<T, std::string>);
    return kString;
  }
}

/// Little-endian bytes of a header.
class HeaderBytes {
 public:
  template <std::unsigned_integral T>
  void number(T value) {
    for (std::size_t i = 0; i < sizeof(T); ++i) {
      bytes_.push_back(static_cast<char>(static_cast<unsigned char>(value >> (8 * i))));
    }
  }
  void text(std::string_view text) {
    number(std::uint64_t{text.size()});
    bytes_ += text;
  }
  template <class T>
  void value(const T& value) {
    if constexpr (std::is_same_v<T, std::string>) {
      text(value);
    } else if constexpr (std::is_same_v<T, float>) {
      number(std::bit_cast<std::uint32_t>(value));
    } else if constexpr (std::is_same_v<T, bool>) {
      bytes_.push_back(value ? 1 : 0);
    } else {
      number(static_cast<std::make_unsigned_t<T>>(value));
    }
  }
  void field(const GgufField& field) {
    text(field.key);
    std::visit([this](const auto& value) { typed(value); }, field.value);
  }
  void align() { bytes_.append((kAlignment - bytes_.size() % kAlignment) % kAlignment, '\0'); }
  [[nodiscard]] std::span<const std::byte> bytes() const {
    return std::as_bytes(std::span(bytes_));
  }

 private:
  template <class T>
  void typed(const T& one) {
    number(code_of<T>());
    value(one);
  }
  template <class T>
  void typed(const std::vector<T>& list) {
    number(kArray);
    number(code_of<T>());
    number(std::uint64_t{list.size()});
    for (const T& one : list) {
      value(one);
    }
  }

  std::string bytes_ = "GGUF";
};

std::uint64_t aligned(std::uint64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

std::uint64_t gguf_size_bytes(const GgufHeading& tensor) {
  std::uint64_t elements = 1;
  for (const std::int64_t dimension : tensor.shape) {
    elements *= static_cast<std::uint64_t>(dimension);
  }
  TRAIN_CHECK(!tensor.shape.empty() && tensor.shape.back() % tensor.type->block_elements == 0,
              "{}: rows of {} are no whole blocks", tensor.name,
              tensor.shape.empty() ? 0 : tensor.shape.back());
  return elements / tensor.type->block_elements * tensor.type->block_bytes;
}

Result<GgufWriter> GgufWriter::create(const std::filesystem::path& path,
                                      std::span<const GgufField> metadata,
                                      std::span<const GgufHeading> tensors) {
  HeaderBytes header;
  header.number(kVersion);
  header.number(std::uint64_t{tensors.size()});
  header.number(std::uint64_t{metadata.size()});
  std::set<std::string_view> names;
  for (const GgufField& field : metadata) {
    TRAIN_CHECK(names.insert(field.key).second, "key {} twice", field.key);
    header.field(field);
  }
  names.clear();
  std::uint64_t offset = 0;
  std::vector<std::uint64_t> due;
  for (const GgufHeading& tensor : tensors) {
    TRAIN_CHECK(names.insert(tensor.name).second, "tensor {} twice", tensor.name);
    header.text(tensor.name);
    header.number(static_cast<std::uint32_t>(tensor.shape.size()));
    for (auto axis = tensor.shape.rbegin(); axis != tensor.shape.rend(); ++axis) {
      header.number(static_cast<std::uint64_t>(*axis));
    }
    header.number(tensor.type->code);
    header.number(offset);
    due.push_back(gguf_size_bytes(tensor));
    offset += aligned(due.back());
  }
  header.align();
  auto file = TRAIN_TRY(AtomicFile::create(path));
  TRAIN_RETURN_IF_ERROR(file.write(header.bytes()));
  return GgufWriter(std::move(file), std::move(due));
}

Status GgufWriter::write(std::span<const std::byte> bytes) {
  TRAIN_RETURN_IF_ERROR(finish_tensors());
  TRAIN_CHECK(tensor_ < due_.size() && bytes.size() <= due_[tensor_] - written_,
              "{} bytes that no tensor has", bytes.size());
  written_ += bytes.size();
  return file_.write(bytes);
}

/// Fills up tensors that are complete, and goes on to the next.
Status GgufWriter::finish_tensors() {
  constexpr std::array<std::byte, kAlignment> zeros{};
  while (tensor_ < due_.size() && written_ == due_[tensor_]) {
    const std::uint64_t rest = aligned(written_) - written_;
    TRAIN_RETURN_IF_ERROR(file_.write(std::span(zeros).first(static_cast<std::size_t>(rest))));
    ++tensor_;
    written_ = 0;
  }
  return {};
}

Status GgufWriter::commit() {
  TRAIN_RETURN_IF_ERROR(finish_tensors());
  TRAIN_CHECK(tensor_ == due_.size(), "tensor {} is not complete", tensor_);
  return file_.commit();
}

}  // namespace train::storage
