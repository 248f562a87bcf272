#include "bench/support/bench_child.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <stdexcept>
#include <vector>

namespace train::bench {

BenchChild::BenchChild(const Words& words, std::filesystem::path errors)
    : errors_(std::move(errors)) {
  int to_child[2];
  int from_child[2];
  if (::pipe2(to_child, O_CLOEXEC) != 0 || ::pipe2(from_child, O_CLOEXEC) != 0) {
    throw std::runtime_error("no pipe");
  }
  ::signal(SIGPIPE, SIG_IGN);  // An ended child is noticed when its answer is due.
  std::vector<char*> arguments;
  for (const std::string& word : words) {
    arguments.push_back(const_cast<char*>(word.c_str()));
  }
  arguments.push_back(nullptr);
  id_ = ::fork();
  if (id_ == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // The child ends with the benchmark.
    const int file = ::open(errors_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
    ::dup2(to_child[0], STDIN_FILENO);
    ::dup2(from_child[1], STDOUT_FILENO);
    ::dup2(file, STDERR_FILENO);
    ::execvp(arguments.front(), arguments.data());
    ::_exit(127);
  }
  ::close(to_child[0]);
  ::close(from_child[1]);
  input_ = ::fdopen(to_child[1], "w");
  output_ = ::fdopen(from_child[0], "r");
}

BenchChild::~BenchChild() {
  std::fclose(input_);
  std::fclose(output_);
  if (!ended_) {
    ::kill(id_, SIGKILL);
    ::waitpid(id_, nullptr, 0);
  }
}

void BenchChild::write_line(const std::string& line) {
  fmt::print(input_, "{}\n", line);
  std::fflush(input_);
}

bool BenchChild::wait_readable(double seconds) const {
  pollfd output = {.fd = ::fileno(output_), .events = POLLIN, .revents = 0};
  return ::poll(&output, 1, static_cast<int>(seconds * 1e3)) > 0;
}

std::optional<std::string> BenchChild::read_line() {
  std::string line;
  for (int letter = std::fgetc(output_); letter != EOF; letter = std::fgetc(output_)) {
    if (letter == '\n') {
      return line;
    }
    line.push_back(static_cast<char>(letter));
  }
  return std::nullopt;
}

int BenchChild::wait() {
  int status = 0;
  ::waitpid(id_, &status, 0);
  ended_ = true;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

bool BenchChild::running() {
  if (!ended_ && ::waitpid(id_, nullptr, WNOHANG) == id_) {
    ended_ = true;
  }
  return !ended_;
}

double BenchChild::peak_bytes() const {
  std::ifstream lines(fmt::format("/proc/{}/status", id_));
  const std::string key = "VmHWM:";
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(key)) {
      return std::stod(line.substr(key.size())) * 1024.0;
    }
  }
  return 0.0;
}

std::string BenchChild::errors() const {
  std::ifstream stream(errors_);
  const std::string text((std::istreambuf_iterator<char>(stream)),
                         std::istreambuf_iterator<char>());
  return text.size() > 600 ? text.substr(text.size() - 600) : text;
}

}  // namespace train::bench
