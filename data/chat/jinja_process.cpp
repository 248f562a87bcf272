#include "data/chat/jinja_process.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <ctime>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <system_error>
#include <utility>
#include <vector>

#include "base/text/one_line.hpp"
#include "data/chat/jinja_script.hpp"

namespace train::data {
namespace {

using nlohmann::json;

constexpr double kStartSeconds = 30.0;
/// Limit of an answer's line: a million spans.
constexpr std::size_t kHeadLimitBytes = std::size_t{32} << 20U;

double clock_seconds(clockid_t clock) {
  timespec now{};
  return ::clock_gettime(clock, &now) == 0
             ? static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9
             : 0.0;
}

double now_seconds() { return clock_seconds(CLOCK_MONOTONIC); }

/// CPU seconds used by a process; nullopt: it has ended.
std::optional<double> processor_seconds_of(pid_t pid) {
  clockid_t clock{};
  return ::clock_getcpuclockid(pid, &clock) == 0 ? std::optional(clock_seconds(clock))
                                                 : std::nullopt;
}

Error system_error_of(const char* what) {
  return failure(fmt::format("{}: {}", what, std::generic_category().message(errno)));
}

std::string json_line(const json& value) {
  return value.dump(-1, ' ', false, json::error_handler_t::replace) + '\n';
}

/// Converts spans of code points of `text` to bytes. `spans` may overlap, in any order.
std::optional<std::vector<TextSpan>> spans_in(const std::string& text, const json& spans) {
  std::vector<TextSpan> found;
  std::vector<std::pair<std::size_t, std::size_t*>> wanted;
  found.reserve(spans.size());
  for (const json& span : spans) {
    found.push_back({.begin_characters = span.at(0), .end_characters = span.at(1)});
    wanted.emplace_back(found.back().begin_characters, &found.back().begin_bytes);
    wanted.emplace_back(found.back().end_characters, &found.back().end_bytes);
  }
  std::sort(wanted.begin(), wanted.end());
  std::size_t byte = 0;
  std::size_t character = 0;
  for (const auto& [position, target] : wanted) {
    while (byte < text.size() && character < position) {
      ++byte;
      while (byte < text.size() && (static_cast<unsigned char>(text[byte]) & 0xc0U) == 0x80U) {
        ++byte;
      }
      ++character;
    }
    if (character != position) {
      return std::nullopt;
    }
    *target = byte;
  }
  return found;
}

}  // namespace

std::optional<std::array<int, 3>> date_parts(const std::string& date) {
  std::array<int, 3> parts{};
  for (std::size_t i = 0; i < std::min<std::size_t>(date.size(), 10); ++i) {
    const bool dash = i == 4 || i == 7;
    if (dash ? date[i] != '-' : date[i] < '0' || date[i] > '9') {
      return std::nullopt;
    }
    int& part = parts.at(i < 4 ? 0 : i < 7 ? 1 : 2);
    part = dash ? part : 10 * part + (date[i] - '0');
  }
  const std::chrono::year_month_day day{std::chrono::year(parts[0]),
                                        std::chrono::month(static_cast<unsigned>(parts[1])),
                                        std::chrono::day(static_cast<unsigned>(parts[2]))};
  return date.size() == 10 && parts[0] > 0 && day.ok() ? std::optional(parts) : std::nullopt;
}

JinjaProcess::JinjaProcess(Process process, Descriptor socket, Descriptor errors,
                           std::string program, const ChatSettings& settings)
    : process_(std::move(process)),
      socket_(std::move(socket)),
      errors_(std::move(errors)),
      program_(std::move(program)),
      time_limit_(std::chrono::duration<double>(settings.time_limit).count()),
      output_limit_(settings.output_limit_bytes) {}

Result<JinjaProcess> JinjaProcess::start(const TemplateSources& sources,
                                         const SpecialTokens& tokens,
                                         const ChatSettings& settings) {
  const std::string setup = json_line({{"sources", sources},
                                       {"tokens", tokens},
                                       {"date", date_parts(settings.date).value()},
                                       {"output_limit", settings.output_limit_bytes},
                                       {"memory_limit", settings.memory_limit_bytes}});
  std::set<std::string> tried;
  std::vector<std::string> reasons;
  for (const std::string& name : settings.pythons) {
    const auto program = find_program(name);
    if (!program) {
      reasons.push_back(fmt::format("there is no {}", name));
    } else if (tried.insert(*program).second) {
      auto process = start_program(*program, setup, settings);
      if (process) {
        return process;
      }
      reasons.push_back(fmt::format("{}: {}", *program, process.error().message));
    }
  }
  return user_error(
      fmt::format("rendering it needs python3 with jinja2 ({}); install the package "
                  "python3-jinja2, or use a built-in template, as with --template chatml",
                  fmt::join(reasons, "; ")));
}

Result<JinjaProcess> JinjaProcess::start_program(const std::string& program,
                                                 const std::string& setup,
                                                 const ChatSettings& settings) {
  std::array<int, 2> ends{};
  // A socket instead of pipes: writing to one whose reader has died raises no signal.
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    return system_error_of("no socket");
  }
  Descriptor ours(ends[0]);
  Descriptor theirs(ends[1]);
  Descriptor errors(::memfd_create("python-errors", MFD_CLOEXEC));
  if (!errors) {
    return system_error_of("no memory for its messages");
  }
  // -I: no environment variables, no user directories; -B: writes no files.
  const std::vector<std::string> words = {
      program, "-I", "-B", "-X", "utf8", "-c", jinja_script(), std::to_string(theirs.get())};
  auto process = Process::start(
      words, {.inherited = std::span(&ends[1], 1), .errors = errors.get(), .isolated = true});
  if (!process) {
    return failure(fmt::format("it cannot be started: {}", process.error().message));
  }
  theirs.reset();  // Otherwise the end of the process would not be noticed.
  JinjaProcess started(std::move(process).value(), std::move(ours), std::move(errors), program,
                       settings);
  started.send(setup);
  TRAIN_RETURN_IF_ERROR(started.greet());
  return started;
}

Status JinjaProcess::greet() {
  const auto head = TRAIN_TRY(receive_line(now_seconds() + kStartSeconds));
  const json answer = json::parse(head, nullptr, false);
  if (answer.is_object() && answer.contains("missing")) {
    return failure(one_line(answer.value("missing", "")));
  }
  if (!answer.is_object() || !answer.contains("pid") || !answer.contains("cpu")) {
    return failure("it is not Python 3");
  }
  pid_ = answer.at("pid").get<pid_t>();
  processor_seconds_ = answer.at("cpu").get<double>();
  return {};
}

Result<RenderedChat> JinjaProcess::receive() {
  const double deadline = now_seconds() + 6.0 * time_limit_ + 20.0;
  const auto head = TRAIN_TRY(receive_line(deadline));
  try {
    return rendered(json::parse(head), deadline);
  } catch (const json::exception&) {
    return given_up(failure(fmt::format("{} sent an invalid reply", program_)));
  }
}

Result<RenderedChat> JinjaProcess::rendered(const json& head, double deadline) {
  if (head.contains("error")) {
    processor_seconds_ = head.at("cpu");
    const json& line = head.at("line");
    const std::string reason = one_line(head.at("error").get<std::string>());
    return user_error(line.is_null() ? reason
                                     : fmt::format("line {}: {}", line.get<int>(), reason));
  }
  const std::size_t size = head.at("bytes");
  if (size > output_limit_) {
    return given_up(user_error(fmt::format("it prints more than {} bytes", output_limit_)));
  }
  while (received_.size() < size) {
    TRAIN_RETURN_IF_ERROR(exchange_some(deadline));
  }
  RenderedChat chat{.text = received_.substr(0, size), .generated = {}};
  received_.erase(0, size);
  auto spans = spans_in(chat.text, head.at("spans"));
  if (!spans) {
    return given_up(failure(fmt::format("{} sent spans outside its text", program_)));
  }
  chat.generated = std::move(*spans);
  chat.unasked = head.at("unasked").get<std::vector<std::string>>();
  processor_seconds_ = head.at("cpu");
  return chat;
}

Result<std::string> JinjaProcess::receive_line(double deadline) {
  std::size_t searched = 0;
  while (true) {
    const std::size_t end = received_.find('\n', searched);
    if (end != std::string::npos) {
      std::string line = received_.substr(0, end);
      received_.erase(0, end + 1);
      return line;
    }
    searched = received_.size();
    if (searched > kHeadLimitBytes) {
      return given_up(user_error("it has too many generation blocks"));
    }
    TRAIN_RETURN_IF_ERROR(exchange_some(deadline));
  }
}

/// Sends and receives what is possible without waiting, after waiting for the socket within the
/// limits.
Status JinjaProcess::exchange_some(double deadline) {
  double rest = deadline - now_seconds();
  if (const auto taken = pid_ < 0 ? std::nullopt : processor_seconds_of(pid_)) {
    const double budget = time_limit_ - (*taken - processor_seconds_);
    if (budget <= 0.0) {
      return given_up(
          user_error(fmt::format("it takes more than {} s of processor time", time_limit_)));
    }
    rest = std::min(rest, budget);
  }
  if (now_seconds() >= deadline) {
    return given_up(failure(fmt::format("{} did not reply in time", program_)));
  }
  const auto events = static_cast<short>(unsent_.empty() ? POLLIN : POLLIN | POLLOUT);
  pollfd watched{.fd = socket_.get(), .events = events, .revents = 0};
  const int milliseconds = static_cast<int>(std::ceil(std::clamp(rest, 0.0, 60.0) * 1000.0));
  if (::poll(&watched, 1, milliseconds) <= 0) {
    return {};  // The limits are checked again.
  }
  if ((watched.revents & POLLOUT) != 0) {
    const ssize_t sent =
        ::send(socket_.get(), unsent_.data(), unsent_.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    unsent_.erase(0, sent > 0 ? static_cast<std::size_t>(sent) : 0);
  }
  if ((watched.revents & (POLLIN | POLLHUP | POLLERR)) != 0) {
    std::array<char, 65'536> piece{};
    const ssize_t got = ::recv(socket_.get(), piece.data(), piece.size(), MSG_DONTWAIT);
    if (got > 0) {
      received_.append(piece.data(), static_cast<std::size_t>(got));
    } else if (got == 0 || (errno != EAGAIN && errno != EINTR)) {
      return ended();
    }
  }
  return {};
}

bool JinjaProcess::usable() {
  usable_ = usable_ && started_by_ == ::gettid() && !process_.try_reap();
  return usable_;
}

Error JinjaProcess::given_up(Error error) {
  if (usable()) {
    process_.kill();
    usable_ = false;
  }
  return error;
}

/// The process has closed its socket, as it does when it ends.
Error JinjaProcess::ended() {
  usable_ = false;
  process_.kill();
  const std::string how = process_.reap().text();
  std::string said(4096, '\0');
  const off_t size = ::lseek(errors_.get(), 0, SEEK_END);
  const off_t begin = std::max<off_t>(0, size - static_cast<off_t>(said.size()));
  const ssize_t got = ::pread(errors_.get(), said.data(), said.size(), begin);
  said.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
  said.erase(said.find_last_not_of(" \n") + 1);
  const std::size_t last_line = said.rfind('\n');
  said.erase(0, last_line == std::string::npos ? 0 : last_line + 1);
  return failure(fmt::format("{} ended ({}){}", program_, how,
                             said.empty() ? "" : fmt::format(": {}", one_line(said))));
}

}  // namespace train::data
