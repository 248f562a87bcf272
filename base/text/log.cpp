#include "base/text/log.hpp"

#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <memory>
#include <mutex>
#include <string>

#include "base/text/one_line.hpp"
#include "base/text/terminal.hpp"
#include "base/text/text_output.hpp"

namespace train {
namespace {

/// Writes lines to standard error, possibly later; the level is coloured on a terminal.
class ErrorOutputSink final : public spdlog::sinks::base_sink<std::mutex> {
 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t buffer;
    formatter_->format(message, buffer);
    std::string line(buffer.data(), buffer.size());
    if (colours_ && message.color_range_end > message.color_range_start) {
      line.insert(message.color_range_end, "\x1b[0m");
      line.insert(message.color_range_start, colour_of(message.level));
    }
    standard_error().write(line);
  }
  void flush_() override {}

 private:
  static const char* colour_of(spdlog::level::level_enum level) {
    return level >= spdlog::level::err    ? "\x1b[31m\x1b[1m"
           : level >= spdlog::level::warn ? "\x1b[33m\x1b[1m"
                                          : "\x1b[32m";
  }

  bool colours_ = ::isatty(STDERR_FILENO) == 1;
};

// spdlog has one process-wide logger, used only here.
spdlog::logger& logger() {
  static const std::shared_ptr<spdlog::logger> instance = [] {
    auto sink = std::make_shared<ErrorOutputSink>();
    sink->set_pattern("%^%l%$ %v");
    auto made = std::make_shared<spdlog::logger>("actortrain", sink);
    made->flush_on(spdlog::level::info);
    return made;
  }();
  return *instance;
}

}  // namespace

void log_info(std::string_view line) {
  above_live_block([line] { logger().info(without_controls(std::string(line))); });
}
void log_warning(std::string_view line) {
  above_live_block([line] { logger().warn(without_controls(std::string(line))); });
}
void log_error(std::string_view line) {
  above_live_block([line] { logger().error(without_controls(std::string(line))); });
}

LogLevel log_from(LogLevel least) {
  const LogLevel before =
      logger().level() == spdlog::level::warn ? LogLevel::warning : LogLevel::info;
  logger().set_level(least == LogLevel::warning ? spdlog::level::warn : spdlog::level::info);
  return before;
}

}  // namespace train
