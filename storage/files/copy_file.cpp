#include "storage/files/copy_file.hpp"

#include <cstdint>

#include "storage/files/atomic_file.hpp"
#include "storage/files/input_file.hpp"

namespace train::storage {

Status copy_file(const std::filesystem::path& from, const std::filesystem::path& to) {
  constexpr std::uint64_t kLargest = std::uint64_t{256} << 20;
  const auto file = TRAIN_TRY(InputFile::open(from));
  const auto text = TRAIN_TRY(file.read_text(kLargest));
  return write_file_atomically(to, text);
}

}  // namespace train::storage
