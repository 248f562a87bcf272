#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "base/process/descriptor.hpp"
#include "base/process/process.hpp"
#include "base/result.hpp"
#include "data/chat/chat_template.hpp"

namespace train::data {

/// Year, month and day of YYYY-MM-DD; empty if it is not a valid date.
[[nodiscard]] std::optional<std::array<int, 3>> date_parts(const std::string& date);

/// Python process that renders templates, one text after another (see jinja_script()). It runs
/// without locale, user modules and Python environment variables, and ends with this object. Not
/// thread-safe.
class JinjaProcess {
 public:
  /// Starts the first of `settings.pythons` that has jinja2. Blocks at most 30 s for each. Errors
  /// (user): none is usable, with the reason for each and the package to install.
  static Result<JinjaProcess> start(const TemplateSources& sources, const SpecialTokens& tokens,
                                    const ChatSettings& settings);

  JinjaProcess(JinjaProcess&&) noexcept = default;
  JinjaProcess& operator=(JinjaProcess&&) = delete;
  ~JinjaProcess() = default;

  /// Queues lines, to be sent while the next answers are awaited.
  void send(std::string_view lines) { unsent_ += lines; }
  /// Bytes queued but not yet sent.
  [[nodiscard]] std::size_t unsent_bytes() const { return unsent_.size(); }

  /// Returns the next text. Blocks within the time limits. Errors: as ChatTemplate::render, without
  /// the name of the template.
  Result<RenderedChat> receive();
  /// False if the process has ended or must not be used again.
  [[nodiscard]] bool usable();
  /// The program that was started.
  [[nodiscard]] const std::string& program() const { return program_; }

 private:
  JinjaProcess(Process process, Descriptor socket, Descriptor errors, std::string program,
               const ChatSettings& settings);
  static Result<JinjaProcess> start_program(const std::string& program, const std::string& setup,
                                            const ChatSettings& settings);
  Status greet();
  Result<RenderedChat> rendered(const nlohmann::json& head, double deadline);
  Result<std::string> receive_line(double deadline);
  Status exchange_some(double deadline);
  Error given_up(Error error);
  Error ended();

  Process process_;
  Descriptor socket_;
  Descriptor errors_;  ///< Standard error of the process.
  std::string program_;
  double time_limit_ = 0.0;  ///< CPU seconds allowed per text.
  std::size_t output_limit_ = 0;
  std::string unsent_;
  std::string received_;
  pid_t pid_ = -1;  ///< Pid of the interpreter, which a wrapper script may have started.
  double processor_seconds_ = 0.0;  ///< CPU seconds of the process at its last answer.
  bool usable_ = true;
  pid_t started_by_ = ::gettid();  ///< Thread whose end, at any time, ends the process.
};

}  // namespace train::data
