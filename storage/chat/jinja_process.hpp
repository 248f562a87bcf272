#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "base/descriptor.hpp"
#include "base/process.hpp"
#include "base/result.hpp"
#include "storage/chat/chat_template.hpp"

namespace train::storage {

/// Year, month and day of YYYY-MM-DD; none: it is no such date.
[[nodiscard]] std::optional<std::array<int, 3>> date_parts(const std::string& date);

/// A Python process that renders templates, one text after another (see jinja_script()). It has no
/// locale, no user's modules and no environment variable of Python's, and ends with this.
/// Not thread-safe.
class JinjaProcess {
 public:
  /// Starts the first of `settings.pythons` that has jinja2. Blocks at most 30 s for each of them.
  /// Errors (user): there is none; with the reason of each and the package.
  static Result<JinjaProcess> start(const TemplateSources& sources, const SpecialTokens& tokens,
                                    const ChatSettings& settings);

  JinjaProcess(JinjaProcess&&) noexcept = default;
  JinjaProcess& operator=(JinjaProcess&&) = delete;
  ~JinjaProcess() = default;

  /// Queues lines, which the next answers are waited for with.
  void send(std::string_view lines) { unsent_ += lines; }
  /// How much of that is still here.
  [[nodiscard]] std::size_t unsent_bytes() const { return unsent_.size(); }

  /// The next text. Blocks within the limits of time. Errors: as ChatTemplate::render, without the
  /// name of the template.
  Result<RenderedChat> receive();
  /// False: it has ended, or must not be asked again.
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
  Descriptor errors_;  ///< What it prints to its standard error.
  std::string program_;
  double time_limit_ = 0.0;  ///< Seconds of processor time for a text.
  std::size_t output_limit_ = 0;
  std::string unsent_;
  std::string received_;
  pid_t pid_ = -1;                  ///< Of the interpreter, which a script may have started.
  double processor_seconds_ = 0.0;  ///< Of the process, when it gave the last answer.
  bool usable_ = true;
  pid_t started_by_ = ::gettid();  ///< The thread that it ends with, perhaps at any moment.
};

}  // namespace train::storage
