#pragma once

#include <filesystem>
#include <string_view>

#include "base/descriptor.hpp"
#include "base/result.hpp"

// Directories that no other user can enter, below directories in which others may write (/tmp).
// Every name is opened below the descriptor of its parent, without following a link, and judged by
// that descriptor: nothing can be exchanged between the look and the use (ST-11).
namespace train::storage {

/// Opens `below` in `base`, each of its parts a directory that is this user's and that nobody else
/// can write; those that are missing are made, durably, and all get mode 0700. What is in them is
/// therefore reached by this user alone, whatever the modes of the files are. `base` itself is made
/// if it is missing, may be reached through links and may be anybody's. Blocks. Errors: (user) a
/// part is a link, a file, another user's, or others may write it: names it and ends with
/// `way_out`; else those of the disk.
[[nodiscard]] Result<Descriptor> open_private_directory(const std::filesystem::path& base,
                                                        const std::filesystem::path& below,
                                                        std::string_view way_out);

/// Whether all that is below `directory` is directories as above and regular files of this user:
/// also what was put there while others could write. Names that go away meanwhile are fine. Errors:
/// as above. REQUIRES: `directory` is open, and open_private_directory()'s; `path` names it.
[[nodiscard]] Status check_private_tree(int directory, const std::filesystem::path& path,
                                        std::string_view way_out);

/// Creates `path` with mode 0700, and missing parents with the usual one, or takes over one that is
/// there, whatever its mode. Errors (user): it is a link, or another user's.
[[nodiscard]] Status make_private_directory(const std::filesystem::path& path);

}  // namespace train::storage
