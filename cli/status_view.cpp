#include "cli/status_view.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <nlohmann/json.hpp>
#include <system_error>

#include "actors/head/run_status.hpp"
#include "base/host_name.hpp"
#include "storage/files/atomic_file.hpp"

namespace train::cli {
using namespace actors;
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr std::uint64_t kLargestStatus = std::uint64_t{1} << 28U;
constexpr std::int64_t kLate_s = 15;  // a busy shared file system may hold an update back

bool is_status(const Json& json) {
  return json.is_object() && json.contains("format") && json["format"] == "actortrain status" &&
         json.contains("version") && json["version"].is_number_integer();
}

RunCondition condition_of(const Json& json, const Surroundings& here, std::int64_t age_s) {
  if (json.contains("outcome")) {
    return RunCondition::over;
  }
  if (json.value("host", "") != here.host) {
    return age_s > kLate_s ? RunCondition::lost : RunCondition::running;
  }
  const auto start = process_start(json.value("pid", std::int64_t{0}));
  return start && *start == json.value("process_start", std::uint64_t{0}) ? RunCondition::running
                                                                          : RunCondition::died;
}

}  // namespace

Surroundings surroundings_now() {
  return {.host = host_name(),
          .now_unix_s = std::chrono::duration_cast<std::chrono::seconds>(
                            std::chrono::system_clock::now().time_since_epoch())
                            .count()};
}

Result<StatusView> read_status(const fs::path& run, const Surroundings& here) {
  std::error_code ignored;
  const fs::path path = status_path(run);
  if (!fs::exists(run / "config.toml", ignored)) {
    return user_error(fmt::format(
        "{}: not a run directory (no config.toml); give the directory that `actortrain run` made",
        run.string()));
  }
  if (!fs::exists(path, ignored)) {
    return user_error(fmt::format(
        "{}: no status yet; the run has not started, or an older version ran it", path.string()));
  }
  auto text = storage::read_file(path, kLargestStatus);
  if (!text) {
    return text.error();
  }
  const Json json = Json::parse(*text, nullptr, false);
  if (!is_status(json)) {
    return failure(fmt::format("{}: is no status of a run; remove it", path.string()));
  }
  if (json["version"] != 1) {
    return user_error(fmt::format("{}: is of version {}, newer than this program", path.string(),
                                  json["version"].dump()));
  }
  try {
    const std::int64_t age_s =
        std::max<std::int64_t>(0, here.now_unix_s - json.value("written_unix_s", std::int64_t{0}));
    StatusView view{.file = std::move(text).value(),
                    .condition = condition_of(json, here, age_s),
                    .age_s = age_s};
    [[maybe_unused]] const std::string readable = status_text(view);
    return view;
  } catch (const Json::exception&) {
    return failure(fmt::format("{}: is damaged; remove it", path.string()));
  }
}

std::string status_json(const StatusView& view) {
  static constexpr std::array<const char*, 4> kConditions = {"running", "over", "died", "lost"};
  Json json = Json::parse(view.file);
  json["condition"] = kConditions.at(static_cast<std::size_t>(view.condition));
  json["age_s"] = view.age_s;
  return json.dump(1) + "\n";
}

}  // namespace train::cli
