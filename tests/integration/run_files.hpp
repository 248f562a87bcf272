#pragma once

#include <catch2/catch.hpp>
#include <filesystem>
#include <system_error>

#include "run/directory/run_file_table.hpp"

namespace train::test {

/// Every file of the runs in a directory is in the table of docs/recovery.md, which says what its
/// failures mean.
inline void check_files_of_runs(const std::filesystem::path& runs) {
  std::error_code none;
  for (const auto& run : std::filesystem::directory_iterator(runs, none)) {
    if (!std::filesystem::exists(run.path() / "config.toml")) {
      continue;  // no run: of a user's mistake
    }
    // Destructors call this, also after a failure with processes that still change the directory:
    // what is gone between two looks throws nothing.
    std::error_code gone;
    for (std::filesystem::recursive_directory_iterator entry(run.path(), gone), end;
         !gone && entry != end; entry.increment(gone)) {
      const auto path = entry->path().lexically_relative(run.path());
      // No assertion unless it fails: some sites are static, and outlive the test runner.
      if (std::error_code type;
          !entry->is_directory(type) && !type && run::row_of(path) == nullptr) {
        FAIL_CHECK(path.string() << " is in no row of kRunFiles");
      }
    }
  }
}

}  // namespace train::test
