#include "storage/rocks_env.hpp"

#include <rocksdb/env.h>

#include <cerrno>
#include <cstring>
#include <span>
#include <string>
#include <utility>

#include "storage/files/file_calls.hpp"

namespace train::storage {
namespace {

rocksdb::Status refused(const std::string& path, int error_number) {
  return error_number == ENOSPC ? rocksdb::Status::NoSpace(path, std::strerror(error_number))
                                : rocksdb::Status::IOError(path, std::strerror(error_number));
}

/// Runs `make()` unless the hook refuses the call.
template <class Make>
rocksdb::Status pass(FileCall call, const Make& make) {
  const std::string path(call.path);
  const int error_number = ask_hook(call);
  return error_number == 0 ? make() : refused(path, error_number);
}

class HookedFile final : public rocksdb::WritableFileWrapper {
 public:
  HookedFile(std::unique_ptr<rocksdb::WritableFile> file, std::string path)
      : WritableFileWrapper(file.get()), file_(std::move(file)), path_(std::move(path)) {}

  rocksdb::Status Append(const rocksdb::Slice& data) override {
    const auto bytes = std::as_bytes(std::span(data.data(), data.size()));
    FileCall call{.kind = FileCallKind::write, .path = path_, .bytes = bytes};
    const int error_number = ask_hook(call);
    if (error_number != 0) {
      return refused(path_, error_number);
    }
    if (call.bytes.size() == bytes.size()) {
      return file_->Append(data);
    }
    // A short write: a real one is followed by a write of the rest.
    const rocksdb::Status part = file_->Append(rocksdb::Slice(data.data(), call.bytes.size()));
    return part.ok() ? Append(rocksdb::Slice(data.data() + call.bytes.size(),
                                             data.size() - call.bytes.size()))
                     : part;
  }
  rocksdb::Status Append(const rocksdb::Slice& data,
                         const rocksdb::DataVerificationInfo& /*info*/) override {
    return Append(data);
  }
  rocksdb::Status Truncate(std::uint64_t size) override {
    return pass({.kind = FileCallKind::truncate, .path = path_, .size_bytes = size},
                [&] { return file_->Truncate(size); });
  }
  rocksdb::Status Sync() override {
    return pass({.kind = FileCallKind::sync, .path = path_}, [&] { return file_->Sync(); });
  }
  rocksdb::Status Fsync() override {
    return pass({.kind = FileCallKind::sync, .path = path_}, [&] { return file_->Fsync(); });
  }
  rocksdb::Status Close() override {
    return pass({.kind = FileCallKind::close, .path = path_}, [&] { return file_->Close(); });
  }

 private:
  std::unique_ptr<rocksdb::WritableFile> file_;
  std::string path_;
};

class HookedDirectory final : public rocksdb::Directory {
 public:
  HookedDirectory(std::unique_ptr<rocksdb::Directory> directory, std::string path)
      : directory_(std::move(directory)), path_(std::move(path)) {}
  rocksdb::Status Fsync() override {
    return pass({.kind = FileCallKind::sync_directory, .path = path_},
                [&] { return directory_->Fsync(); });
  }

 private:
  std::unique_ptr<rocksdb::Directory> directory_;
  std::string path_;
};

class HookedEnv final : public rocksdb::EnvWrapper {
 public:
  HookedEnv() : EnvWrapper(rocksdb::Env::Default()) {}

  const char* Name() const override { return "hooked"; }

  rocksdb::Status NewWritableFile(const std::string& path,
                                  std::unique_ptr<rocksdb::WritableFile>* file,
                                  const rocksdb::EnvOptions& options) override {
    return opened(path, file, [&] { return target()->NewWritableFile(path, file, options); });
  }
  rocksdb::Status ReopenWritableFile(const std::string& path,
                                     std::unique_ptr<rocksdb::WritableFile>* file,
                                     const rocksdb::EnvOptions& options) override {
    return opened(path, file, [&] { return target()->ReopenWritableFile(path, file, options); });
  }
  rocksdb::Status ReuseWritableFile(const std::string& path, const std::string& old,
                                    std::unique_ptr<rocksdb::WritableFile>* file,
                                    const rocksdb::EnvOptions& options) override {
    return opened(path, file,
                  [&] { return target()->ReuseWritableFile(path, old, file, options); });
  }
  rocksdb::Status NewDirectory(const std::string& path,
                               std::unique_ptr<rocksdb::Directory>* directory) override {
    rocksdb::Status status = target()->NewDirectory(path, directory);
    if (status.ok()) {
      *directory = std::make_unique<HookedDirectory>(std::move(*directory), path);
    }
    return status;
  }
  rocksdb::Status CreateDir(const std::string& path) override {
    return pass({.kind = FileCallKind::make_directory, .path = path},
                [&] { return target()->CreateDir(path); });
  }
  rocksdb::Status RenameFile(const std::string& from, const std::string& to) override {
    return pass({.kind = FileCallKind::rename, .path = from, .to = to},
                [&] { return target()->RenameFile(from, to); });
  }
  rocksdb::Status DeleteFile(const std::string& path) override {
    return pass({.kind = FileCallKind::unlink, .path = path},
                [&] { return target()->DeleteFile(path); });
  }

 private:
  template <class Make>
  rocksdb::Status opened(const std::string& path, std::unique_ptr<rocksdb::WritableFile>* file,
                         const Make& make) {
    rocksdb::Status status = pass({.kind = FileCallKind::open, .path = path}, make);
    if (status.ok()) {
      *file = std::make_unique<HookedFile>(std::move(*file), path);
    }
    return status;
  }
};

class UnlockedEnv final : public rocksdb::EnvWrapper {
 public:
  explicit UnlockedEnv(const std::shared_ptr<rocksdb::Env>& env) : EnvWrapper(env) {}
  UnlockedEnv() : EnvWrapper(rocksdb::Env::Default()) {}

  const char* Name() const override { return "unlocked"; }

  rocksdb::Status LockFile(const std::string& /*path*/, rocksdb::FileLock** lock) override {
    *lock = new rocksdb::FileLock;
    return rocksdb::Status::OK();
  }
  rocksdb::Status UnlockFile(rocksdb::FileLock* lock) override {
    delete lock;
    return rocksdb::Status::OK();
  }
};

}  // namespace

std::shared_ptr<rocksdb::Env> unlocked_rocks_env(const std::shared_ptr<rocksdb::Env>& env) {
  return env == nullptr ? std::make_shared<UnlockedEnv>() : std::make_shared<UnlockedEnv>(env);
}

std::shared_ptr<rocksdb::Env> hooked_rocks_env() {
  return hook_sees_index() ? std::make_shared<HookedEnv>() : nullptr;
}

}  // namespace train::storage
