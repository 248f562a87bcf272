#include "tests/sim/disk.hpp"

#include <fcntl.h>
#include <fmt/format.h>

#include <cerrno>
#include <span>
#include <utility>

#include "storage/files/atomic_file.hpp"

namespace train::sim {

namespace fs = std::filesystem;
using storage::FileCall;
using storage::FileCallKind;

namespace {

bool takes_space(FileCallKind kind) {
  return kind == FileCallKind::open || kind == FileCallKind::write ||
         kind == FileCallKind::make_directory || kind == FileCallKind::rename ||
         kind == FileCallKind::sync;
}

bool is_shard(std::string_view path) { return path.find("shard-") != std::string_view::npos; }

}  // namespace

SimDisk::SimDisk(bool late_sync) : late_sync_(late_sync), directory_(test::quick_directory()) {
  install();
}

SimDisk::~SimDisk() {
  recorder_.reset();  // it puts back the hook before it
}

void SimDisk::install() {
  durable_.emplace(root());
  recorder_.emplace(root());
  storage::install_file_call_hook(this);
}

void SimDisk::end(int process) {
  ended_.insert(process);
  if (end_ && end_->process == process) {
    end_.reset();
  }
}

bool SimDisk::ended(int process) const {
  return ended_.contains(kEverybody) || ended_.contains(kLauncher) || ended_.contains(process);
}

std::optional<int> SimDisk::take_ended_in_call() { return std::exchange(ended_in_call_, {}); }

void SimDisk::start() {
  ended_.clear();
  end_.reset();
  ended_in_call_.reset();
  ends_after_write_ = false;
  full_for_ = 0;
  short_write_ = was_full_ = false;
  process_ = kLauncher;
}

void SimDisk::revive_ranks() {
  std::erase_if(ended_, [](int process) { return process >= 0; });
}

void SimDisk::end_now() {
  const int process = end_->process == kEverybody ? kEverybody : process_;
  end(process);
  end_.reset();
  ended_in_call_ = process;
}

int SimDisk::before(FileCall& call) {
  if (call.kind == FileCallKind::point) {
    return 0;
  }
  if (ended(process_)) {
    return EIO;
  }
  const bool meant = end_ && (end_->process == kEverybody || end_->process == process_);
  if (meant && end_->calls-- == 0) {
    if (call.kind == FileCallKind::write && call.bytes.size() > 1) {
      call.bytes = call.bytes.first(call.bytes.size() / 2);
      ends_after_write_ = true;
      return 0;
    }
    end_now();
    return EIO;
  }
  return refuse_for_space(call);
}

int SimDisk::refuse_for_space(FileCall& call) {
  if (full_for_ == 0 || !takes_space(call.kind)) {
    return 0;
  }
  was_full_ = true;
  if (call.kind == FileCallKind::write && call.bytes.size() > 1 &&
      !std::exchange(short_write_, true)) {
    call.bytes = call.bytes.first(call.bytes.size() / 2);  // the rest of it is what fails
    return 0;
  }
  short_write_ = false;
  --full_for_;
  return ENOSPC;
}

void SimDisk::after(const FileCall& call, int error_number) {
  const bool shard = late_sync_ && is_shard(call.path);
  if (shard && call.kind == FileCallKind::open) {
    sync_shards_late();
  }
  if (!(shard && call.kind == FileCallKind::sync)) {
    recorder_->after(call, error_number);
  }
  if (std::exchange(ends_after_write_, false)) {
    end_now();
  }
}

void SimDisk::sync_shards_late() {
  std::vector<fs::path> shards;
  for (const auto& entry : fs::recursive_directory_iterator(root())) {
    if (is_shard(entry.path().filename().string()) &&
        entry.path().parent_path().filename().string().starts_with("step-")) {
      shards.push_back(entry.path());
    }
  }
  for (const fs::path& shard : shards) {
    recorder_->after({.kind = FileCallKind::sync, .path = shard.native()}, 0);
  }
}

void SimDisk::power_cut(Random& random) {
  using Mode = test::UnsyncedEntries::Mode;
  for (const test::RecordedCall& call : recorder_->calls()) {
    durable_->apply(call);
  }
  const std::size_t pending = durable_->pending_entries();
  const test::UnsyncedEntries entries{.mode = static_cast<Mode>(random() % 4),
                                      .which = pending > 0 ? random() % pending : 0};
  const auto bytes = static_cast<test::UnsyncedBytes>(random() % 7);
  const auto left = durable_->after_power_cut(entries, bytes);
  recorder_.reset();
  for (const std::string& name : test::names_in(root())) {
    fs::remove_all(root() / name);
  }
  test::materialise(left, root());
  install();
}

Status copy_on_disk(const fs::path& from, const fs::path& to) {
  const auto content = storage::read_file(from, std::uint64_t{1} << 30U);
  TRAIN_RETURN_IF_ERROR(content);
  const fs::path hidden = to.parent_path() / fmt::format(".{}.copied", to.filename().string());
  const int descriptor = storage::disk_open(hidden, O_WRONLY | O_TRUNC);
  if (descriptor < 0) {
    return storage::os_error(storage::Access::write, hidden, errno);
  }
  int result = storage::disk_write_all(descriptor, hidden, std::as_bytes(std::span(*content)));
  result |= storage::disk_close(descriptor, hidden);
  if (result != 0 || storage::disk_rename(hidden, to) != 0) {
    return storage::os_error(storage::Access::write, to, errno);
  }
  return {};
}

namespace {

/// Every write goes to the log; what it comes to is in memory.
class LoggedStore final : public storage::KvStore {
 public:
  LoggedStore(IndexLog& log, SimDisk& disk) : log_(log), disk_(disk) {
    for (const storage::WriteBatch& batch : log.writes()) {
      (void)content_.write(batch, storage::Durability::buffered);  // memory refuses nothing
    }
  }

  Status write(const storage::WriteBatch& batch, storage::Durability durability) override {
    FileCall call{.kind = FileCallKind::write, .path = "index"};
    if (const int refused = disk_.before(call); refused != 0) {
      return failure(refused == ENOSPC ? "the index: disk full" : "the index: no such process");
    }
    log_.append(batch, durability);
    return content_.write(batch, durability);
  }
  Status scan_from(std::string_view first, std::string_view prefix,
                   const Visitor& visitor) override {
    return content_.scan_from(first, prefix, visitor);
  }
  Result<std::optional<std::string>> last_key(std::string_view prefix) override {
    return content_.last_key(prefix);
  }

 private:
  IndexLog& log_;
  SimDisk& disk_;
  test::MemoryStore content_;
};

}  // namespace

std::unique_ptr<storage::KvStore> IndexLog::open(SimDisk& disk) {
  return std::make_unique<LoggedStore>(*this, disk);
}

void IndexLog::append(const storage::WriteBatch& batch, storage::Durability durability) {
  writes_.push_back(batch);
  if (durability == storage::Durability::synced) {
    synced_ = writes_.size();
  }
}

void IndexLog::power_cut(Random& random) {
  const std::size_t unsynced = writes_.size() - synced_;
  writes_.resize(synced_ + random() % (unsynced + 1));
  synced_ = writes_.size();
}

}  // namespace train::sim
