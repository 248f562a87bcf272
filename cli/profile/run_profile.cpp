#include "cli/profile/run_profile.hpp"

#include <fmt/format.h>

#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "actors/train/rank_profile.hpp"
#include "cli/profile/chrome_trace.hpp"
#include "cli/profile/profile_summary.hpp"
#include "storage/files/atomic_file.hpp"

namespace train::cli {
using namespace actors;
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kLargestProfile = std::uint64_t{1} << 31U;

fs::path rank_file(const fs::path& directory, std::int64_t rank) {
  return directory / fmt::format("rank-{}.json", rank);
}

Status write_trace(const fs::path& path, const std::vector<RankProfile>& profiles) {
  auto file = storage::AtomicFile::create(path);
  TRAIN_RETURN_IF_ERROR(file);
  TRAIN_RETURN_IF_ERROR(
      write_chrome_trace(profiles, [&file](std::string_view text) { return file->write(text); }));
  return file->commit();
}

bool is_there(const fs::path& path, std::chrono::steady_clock::time_point deadline) {
  std::error_code unreadable;
  while (!fs::exists(path, unreadable)) {
    if (unreadable) {
      return true;  // what is wrong is said by read_file()
    }
    if (std::chrono::steady_clock::now() >= deadline) {
      return false;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return true;
}

}  // namespace

Status prepare_profile(const fs::path& directory) {
  TRAIN_RETURN_IF_ERROR(storage::remove_tree(directory));
  return storage::make_directory(directory);
}

Status write_rank_profile(const fs::path& directory, const RankRuntime& runtime) {
  return storage::write_file_atomically(rank_file(directory, runtime.rank),
                                        to_json(collect_profile(runtime)));
}

Result<std::string> join_profiles(const fs::path& directory, std::int64_t ranks,
                                  std::chrono::milliseconds patience) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  std::vector<RankProfile> profiles;
  std::vector<std::string> absent;
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    const fs::path path = rank_file(directory, rank);
    if (!is_there(path, deadline)) {
      absent.push_back(fmt::format("rank {} left no profile: it ended before it could", rank));
      continue;
    }
    const auto text = storage::read_file(path, kLargestProfile);
    TRAIN_RETURN_IF_ERROR(text);
    auto profile = parse_profile(*text, path.string());
    TRAIN_RETURN_IF_ERROR(profile);
    profiles.push_back(std::move(profile).value());
  }
  if (profiles.empty()) {
    return failure(fmt::format("{}: no rank left a profile", directory.string()));
  }
  ProfileSummary summary = summarize(profiles);
  summary.remarks.insert(summary.remarks.end(), absent.begin(), absent.end());
  TRAIN_RETURN_IF_ERROR(write_trace(directory / "trace.json", profiles));
  TRAIN_RETURN_IF_ERROR(
      storage::write_file_atomically(directory / "summary.json", to_json(summary)));
  return to_text(summary);
}

}  // namespace train::cli
