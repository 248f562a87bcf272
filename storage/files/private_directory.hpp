#pragma once

#include <filesystem>
#include <string_view>

#include "base/process/descriptor.hpp"
#include "base/result.hpp"

// Directories that no other user can enter, below directories that others can write to (/tmp).
// Every name is opened relative to its parent's descriptor, without following links, and checked
// through that descriptor: nothing can be swapped between check and use (ST-11).
namespace train::storage {

/// Opens `below` in `base`. Each part must be a directory owned by this user and not writable by
/// others; missing ones are created, durably, and all get mode 0700. So only this user can reach
/// the content, whatever the modes of the files. `base` itself is created if missing, may be
/// reached through links and may have any owner. Blocks. Errors: (user) a part is a link or a file,
/// or another user owns it or can write to it: names it and ends with `way_out`; otherwise disk
/// errors.
[[nodiscard]] Result<Descriptor> open_private_directory(const std::filesystem::path& base,
                                                        const std::filesystem::path& below,
                                                        std::string_view way_out);

/// Checks that everything below `directory` is a directory as above or a regular file of this user,
/// as others may have written there before. Names that disappear meanwhile are fine. Errors: as
/// above. REQUIRES: `directory` is a descriptor from open_private_directory(); `path` names it.
[[nodiscard]] Status check_private_tree(int directory, const std::filesystem::path& path,
                                        std::string_view way_out);

/// Creates `path` with mode 0700 (missing parents with the default mode), or accepts an existing
/// directory of any mode. Errors (user): a link, or owned by another user.
[[nodiscard]] Status make_private_directory(const std::filesystem::path& path);

}  // namespace train::storage
