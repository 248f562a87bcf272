#include "storage/files/run_lock.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <random>
#include <span>
#include <sstream>
#include <system_error>
#include <thread>
#include <utility>

#include "base/process/descriptor.hpp"
#include "base/process/host_name.hpp"
#include "base/process/joined_thread.hpp"
#include "base/process/stop_signals.hpp"
#include "base/text/log.hpp"
#include "base/text/one_line.hpp"
#include "storage/files/atomic_file.hpp"
#include "storage/files/file_calls.hpp"
#include "storage/files/file_lock.hpp"

namespace train::storage {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr const char* kName = "run.lock";
/// Size of a padded record: a later one overwrites it in one call that needs no more space.
constexpr std::size_t kRecordBytes = 512;

/// Owner of the directory. Older versions wrote only the first line.
struct Record {
  std::int64_t pid = 0;
  std::string host = {}, boot = {}, job = {};
  std::string processes = {};  ///< Pid namespace of the owner: each container has its own.
  std::string word = {};       ///< Random word of this lock; empty: an older version's.
  std::uint64_t token = 0, beat = 0;
  bool given_back = false;

  [[nodiscard]] bool has_beat() const { return !word.empty(); }
  [[nodiscard]] bool is_owned() const { return pid > 0 || has_beat(); }
};

std::string text_of(const Record& record) {
  std::string text =
      fmt::format("{}\nhost {}\nboot {}\nprocesses {}\njob {}\n", record.pid, record.host,
                  record.boot, record.processes, record.job) +
      fmt::format("lock {}\ntoken {}\nbeat {}\nstate {}\n", record.word, record.token, record.beat,
                  record.given_back ? "given_back" : "held");
  text.resize(std::max(text.size(), kRecordBytes - 1), ' ');
  return text + "\n";
}

Record record_of(const std::string& text) {
  Record record;
  std::istringstream lines(text);
  std::string line;
  if (std::getline(lines, line)) {
    std::istringstream(line) >> record.pid;
  }
  while (std::getline(lines, line)) {
    const std::size_t end = line.find(' ');
    const std::string key = line.substr(0, end);
    const std::string value = end == std::string::npos ? "" : one_line(line.substr(end + 1));
    std::istringstream number(value);
    if (key == "host") {
      record.host = value;
    } else if (key == "boot") {
      record.boot = value;
    } else if (key == "processes") {
      record.processes = value;
    } else if (key == "job") {
      record.job = value;
    } else if (key == "lock") {
      record.word = value;
    } else if (key == "token") {
      number >> record.token;
    } else if (key == "beat") {
      number >> record.beat;
    } else if (key == "state") {
      record.given_back = value == "given_back";
      break;  // Bytes after a record do not belong to it.
    }
  }
  return record;
}

Result<Record> read_record(int descriptor, const fs::path& path) {
  std::string text(2 * kRecordBytes, '\0');
  const ssize_t got = disk_read_at(descriptor, path, std::as_writable_bytes(std::span(text)), 0);
  if (got < 0) {
    return os_error(Access::read, path, errno);
  }
  text.resize(static_cast<std::size_t>(got));
  return record_of(text);
}

/// nullopt: the file is missing.
Result<std::optional<Record>> record_at(const fs::path& path) {
  const Descriptor file(disk_open_to_read(path, O_RDONLY));
  if (!file) {
    return errno == ENOENT ? Result(std::optional<Record>())
                           : Result<std::optional<Record>>(os_error(Access::read, path, errno));
  }
  auto record = TRAIN_TRY(read_record(file.get(), path));
  return std::optional(std::move(record));
}

std::string machine() {
  const std::string boot = boot_id();
  return boot.empty() ? host_name() : boot;
}

/// The kernel's name of this process's pid namespace; "": unknown.
std::string process_space() {
  std::error_code code;
  return fs::read_symlink("/proc/self/ns/pid", code).string();
}

std::string random_word() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}{:08x}{:08x}", random(), random(), random(), random());
}

Record own_record() {
  const char* const job = std::getenv("SLURM_JOB_ID");
  return {.pid = ::getpid(),
          .host = one_line(host_name()),
          .boot = machine(),
          .job = one_line(job == nullptr ? "" : job).substr(0, 64),
          .processes = process_space(),
          .word = random_word()};
}

std::string name_of(const Record& owner) {
  return fmt::format("process {}{}{}", owner.pid > 0 ? std::to_string(owner.pid) : "(unknown)",
                     owner.host.empty() ? "" : " of " + owner.host,
                     owner.job.empty() ? "" : fmt::format(" (Slurm job {})", owner.job));
}

Error in_use(const fs::path& directory, const Record& owner) {
  return user_error(fmt::format("{} is already in use by {}; wait for it or stop it",
                                directory.string(), name_of(owner)));
}

bool is_at(int descriptor, const fs::path& path) {
  struct stat open = {};
  struct stat there = {};
  return ::fstat(descriptor, &open) == 0 && ::stat(path.c_str(), &there) == 0 &&
         open.st_dev == there.st_dev && open.st_ino == there.st_ino;
}

/// Time for which a beat has stood still, by the observer's clock.
class Stillness {
 public:
  /// True: the beat has changed since the first look, so its owner lives.
  bool look(const Record& record) {
    const bool same = seen_ && seen_->word == record.word && seen_->beat == record.beat;
    const bool moved = seen_ && seen_->word == record.word && seen_->beat != record.beat;
    if (!same) {
      seen_ = record;
      since_ = Clock::now();
    }
    return moved;
  }
  [[nodiscard]] bool lasts(std::chrono::milliseconds time) const {
    return Clock::now() - since_ >= time;
  }

 private:
  std::optional<Record> seen_;
  Clock::time_point since_ = Clock::now();
};

/// Takes a directory's lock as soon as it is free.
class Taking {
 public:
  Taking(const fs::path& directory, const RunLock::Timing& timing, Record own)
      : directory_(directory), path_(directory / kName), timing_(timing), own_(std::move(own)) {}

  /// Returns the file, locked if the file system has locks, with own() written.
  Result<Descriptor> take() {
    while (true) {
      Descriptor file(disk_open(path_, O_RDWR));
      if (!file) {
        return os_error(Access::write, path_, errno);
      }
      const bool locked = lock_if_free(file.get());
      if (!locked && errno != EWOULDBLOCK) {
        return os_error(Access::write, path_, errno);
      }
      if (!is_at(file.get(), path_)) {
        continue;  // The file was replaced.
      }
      const Record owner = TRAIN_TRY(read_record(file.get(), path_));
      const auto may = TRAIN_TRY(may_take(owner, locked));
      if (may) {
        own_.token = owner.token + 1;
        auto taken = locked ? write_here(std::move(file)) : replace(owner);
        if (!taken || *taken) {
          return taken;
        }
      }
      if (stop_signal() != 0) {
        return failure(
            fmt::format("stopped while {} was in use by {}", directory_.string(), name_of(owner)));
      }
      std::this_thread::sleep_for(timing_.look);
    }
  }
  [[nodiscard]] const Record& own() const { return own_; }

 private:
  /// True if the lock can be taken now; false: try again later. Errors: its owner lives.
  Result<bool> may_take(const Record& owner, bool locked) {
    const bool here = owner.boot == own_.boot;
    if (locked && (!owner.has_beat() || owner.given_back)) {
      return true;
    }
    if (locked && here) {
      // The lock was granted although its owner lives: the file system has no locks.
      const bool gone = has_ended(owner);
      const bool lives = !gone && still_.look(owner);
      return lives ? Result<bool>(in_use(directory_, owner))
                   : Result<bool>(gone || still_.lasts(timing_.unlocked));
    }
    const bool same_job = !owner.job.empty() && owner.job == own_.job;
    const bool lives = !owner.has_beat() || (here && !same_job) || still_.look(owner);
    if ((lives && !same_job) || Clock::now() - begun_ >= timing_.same_job) {
      return in_use(directory_, owner);
    }
    if (!std::exchange(said_, true)) {
      log_info(
          fmt::format("lock_awaited {} was not released by {}; waiting until it is clear that this "
                      "process has ended",
                      directory_.string(), name_of(owner)));
    }
    return !here && still_.lasts(locked ? timing_.unlocked : timing_.locked);
  }

  /// True if the owner is on this machine and known to have ended; an owner in another container
  /// shows only its beat.
  [[nodiscard]] bool has_ended(const Record& owner) const {
    return owner.processes == own_.processes &&
           (owner.pid == ::getpid() || owner.pid <= 0 ||
            (::kill(static_cast<pid_t>(owner.pid), 0) != 0 && errno != EPERM));
  }

  Result<Descriptor> write_here(Descriptor file) const {
    const std::string text = text_of(own_);
    // Overwrites the content, so the file is never empty, and a full disk has room for it.
    if (disk_write_all_at(file.get(), path_, std::as_bytes(std::span(text)), 0) != 0) {
      return os_error(Access::write, path_, errno);
    }
    return file;
  }

  /// Replaces a file that a dead client keeps locked by an own one. No descriptor: another process
  /// was faster.
  Result<Descriptor> replace(const Record& owner) const {
    const fs::path mine = directory_ / fmt::format(".{}.{}", kName, own_.word);
    Descriptor file(::open(mine.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
    const std::string text = text_of(own_);
    const bool made =
        file && lock_if_free(file.get()) &&
        ::pwrite(file.get(), text.data(), text.size(), 0) == static_cast<ssize_t>(text.size()) &&
        ::fdatasync(file.get()) == 0;
    const int error_number = errno;
    const auto now = record_at(path_);
    const bool same = now && *now && (*now)->word == owner.word && (*now)->beat == owner.beat;
    if (!made || !same || ::rename(mine.c_str(), path_.c_str()) != 0) {
      ::unlink(mine.c_str());
      return made ? Result<Descriptor>(Descriptor())
                  : Result<Descriptor>(os_error(Access::write, mine, error_number));
    }
    std::this_thread::sleep_for(2 * timing_.look);  // If two processes did so at once, the second
                                                    // one owns it.
    const auto there = record_at(path_);
    log_warning(fmt::format("lock_taken_over {} from {}, whose heartbeat has stopped",
                            directory_.string(), name_of(owner)));
    TRAIN_RETURN_IF_ERROR(there);
    return *there && (*there)->word == own_.word ? std::move(file) : Descriptor();
  }

  fs::path directory_, path_;
  RunLock::Timing timing_;
  Record own_;
  Stillness still_;
  Clock::time_point begun_ = Clock::now();
  bool said_ = false;
};

}  // namespace

class RunLock::Holder {
 public:
  Holder(fs::path path, Descriptor file, Record own, OnLost on_lost, std::chrono::milliseconds beat)
      : path_(std::move(path)),
        file_(std::move(file)),
        own_(std::move(own)),
        on_lost_(std::move(on_lost)),
        thread_([this, beat](const std::stop_token& stop) { count(stop, beat); }) {}
  Holder(const Holder&) = delete;
  Holder& operator=(const Holder&) = delete;
  ~Holder() {
    thread_.request_stop();
    thread_.join();
    own_.given_back = true;
    if (const auto there = record_at(path_); there && *there && (*there)->word == own_.word) {
      write();
    }
  }

  /// A missing or empty file has no owner.
  [[nodiscard]] Status check() const {
    const auto there = TRAIN_TRY(record_at(path_));
    if (there && there->is_owned() && there->word != own_.word) {
      on_lost_(fmt::format("{}: {} has taken over the run; this process ends", path_.string(),
                           name_of(*there)));
      return failure("another process owns the run");
    }
    return {};
  }

 private:
  void write() const {
    const std::string text = text_of(own_);
    // If it cannot be written now, the next beat will be.
    if (::pwrite(file_.get(), text.data(), text.size(), 0) > 0) {
      ::fdatasync(file_.get());  // Otherwise an NFS client only caches the write.
    }
  }
  void count(const std::stop_token& stop, std::chrono::milliseconds beat) {
    std::mutex mutex;
    std::condition_variable_any never;
    std::unique_lock lock(mutex);
    while (!never.wait_for(lock, stop, beat, [] { return false; }) && !stop.stop_requested()) {
      if (check()) {
        ++own_.beat;
        write();
      }
    }
  }

  fs::path path_;
  Descriptor file_;
  Record own_;  // Owned by the thread while it runs.
  OnLost on_lost_;
  JoinedThread thread_;
};

Result<RunLock> RunLock::acquire(const fs::path& directory, OnLost on_lost, const Timing& timing) {
  Taking taking(directory, timing, own_record());
  auto file = TRAIN_TRY(taking.take());
  return RunLock(std::make_unique<Holder>(directory / kName, std::move(file), taking.own(),
                                          std::move(on_lost), timing.beat));
}

RunLock::RunLock(std::unique_ptr<Holder> holder) : holder_(std::move(holder)) {}
RunLock::RunLock(RunLock&&) noexcept = default;
RunLock& RunLock::operator=(RunLock&&) noexcept = default;
RunLock::~RunLock() = default;

Status RunLock::check() const { return holder_->check(); }

std::function<Status()> RunLock::checks() const {
  return [holder = holder_.get()] { return holder->check(); };
}

}  // namespace train::storage
