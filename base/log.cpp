#include "base/log.hpp"

#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <memory>
#include <string>

#include "base/terminal.hpp"

namespace train {
namespace {

// spdlog keeps one process-wide logger; this is its only user, so nothing else can hold the state.
spdlog::logger& logger() {
  static const std::shared_ptr<spdlog::logger> instance = [] {
    auto sink = std::make_shared<spdlog::sinks::stderr_color_sink_mt>();
    sink->set_pattern("%^%l%$ %v");
    auto made = std::make_shared<spdlog::logger>("actortrain", sink);
    made->flush_on(spdlog::level::info);
    return made;
  }();
  return *instance;
}

}  // namespace

void log_info(std::string_view line) {
  above_live_block([line] { logger().info(line); });
}
void log_warning(std::string_view line) {
  above_live_block([line] { logger().warn(line); });
}
void log_error(std::string_view line) {
  above_live_block([line] { logger().error(line); });
}

void log_less() { logger().sinks().front()->set_level(spdlog::level::warn); }

bool log_to_file(std::string_view path, bool quiet_terminal) {
  try {
    auto sink = std::make_shared<spdlog::sinks::basic_file_sink_mt>(std::string(path));
    sink->set_pattern("%Y-%m-%dT%H:%M:%S.%e %l %v");
    if (quiet_terminal) {
      log_less();
    }
    logger().sinks().push_back(std::move(sink));
    return true;
  } catch (const spdlog::spdlog_ex&) {
    return false;
  }
}

}  // namespace train
