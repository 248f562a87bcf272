#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string_view>

namespace train::storage {

// Calls through which storage/ and checkpoint/ change the disk (RocksDB's files too if a hook asks
// for it) and read whole files or checkpoints. Thin wrappers that return the system's result and
// set errno. A process-wide hook, never installed in production, sees each call: tests make calls
// fail, record them, or end the process there. Without a hook a call costs one extra load.

enum class FileCallKind : std::uint8_t {
  open,              ///< For writing: the file is created if missing, truncated if asked.
  write,             ///< Appends `bytes`, or overwrites from `offset` on.
  truncate,          ///< To `size_bytes`.
  sync,              ///< fsync of a file.
  close,             ///< Close of a file opened for writing.
  rename,            ///< `path` to `to`.
  make_directory,    ///< One directory, without its parents.
  sync_directory,    ///< fsync of a directory: its entries.
  unlink,            ///< Removes anything but a directory.
  remove_directory,  ///< Removes an empty directory.
  point,             ///< No change: a named instant, see file_point().
};

/// "open", "write", …
[[nodiscard]] std::string_view name_of(FileCallKind kind);

/// File call. The views live as long as the call.
struct FileCall {
  FileCallKind kind = FileCallKind::point;
  std::string_view path = {};                ///< As passed by the caller.
  std::string_view to = {};                  ///< rename: the new name. point: the point's name.
  std::span<const std::byte> bytes = {};     ///< write: bytes to write; afterwards: bytes written.
  std::optional<std::uint64_t> offset = {};  ///< write: position; nullopt: the end.
  std::uint64_t size_bytes = 0;              ///< truncate: the new size.
  bool empties = false;                      ///< open: truncates existing content.
};

/// Call that opens a file for reading, or reads from it.
struct FileRead {
  std::string_view path = {};    ///< As passed by the caller.
  std::uint64_t size_bytes = 0;  ///< Bytes requested; 0: the file is opened.
};

/// Hook for every call. Threading: called from any thread, concurrently.
class FileCallHook {
 public:
  FileCallHook() = default;
  FileCallHook(const FileCallHook&) = delete;
  FileCallHook& operator=(const FileCallHook&) = delete;
  virtual ~FileCallHook() = default;

  /// Returns 0 to make the call with `bytes`, possibly shortened (a short write); otherwise the
  /// error number with which it fails without being made (ignored for a point).
  virtual int before(FileCall& call) = 0;
  /// Called after the call, with its error number or 0; not if before() made it fail.
  virtual void after(const FileCall& call, int error_number) = 0;
  /// Returns 0 to make the call with `size_bytes`, possibly lowered (0: as at the end of the file);
  /// otherwise the error number with which it fails without being made.
  virtual int before_read(FileRead& /*read*/) { return 0; }
  /// True if a RocksDB opened from now on should report its file calls too.
  [[nodiscard]] virtual bool sees_index() const { return false; }
};

/// Installs `hook` (borrowed until another is installed; nullptr: none) and returns the previous
/// one. For tests. REQUIRES: no other thread changes the disk meanwhile.
FileCallHook* install_file_call_hook(FileCallHook* hook);

/// True if the installed hook sees_index().
[[nodiscard]] bool hook_sees_index();
/// Passes a call made elsewhere to the hook. Returns 0, with `call` as changed by the hook, or the
/// error number to fail with.
int ask_hook(FileCall& call);

/// Names an instant at which tests can stop the process: "index-put", "rsync-start", …. REQUIRES:
/// `name` is a literal.
void file_point(std::string_view name, const std::filesystem::path& path);

/// open(2) with `flags`, O_CREAT and O_CLOEXEC, `mode` minus the umask; repeated after EINTR.
int disk_open(const std::filesystem::path& path, int flags, mode_t mode = 0666);
/// write(2) to an append-only file: may be short or interrupted. Most callers want
/// disk_write_all().
ssize_t disk_write(int descriptor, const std::filesystem::path& path,
                   std::span<const std::byte> bytes);
/// Writes all of `bytes`, in as many calls as needed. Returns 0, or -1 with errno.
int disk_write_all(int descriptor, const std::filesystem::path& path,
                   std::span<const std::byte> bytes);
/// Overwrites from `offset` on, like disk_write_all().
int disk_write_all_at(int descriptor, const std::filesystem::path& path,
                      std::span<const std::byte> bytes, std::uint64_t offset);
int disk_truncate(int descriptor, const std::filesystem::path& path, std::uint64_t size_bytes);
/// fsync(2), repeated after EINTR. After any other failure the system may have dropped the
/// unwritten pages and a second fsync may wrongly succeed: abandon the file.
int disk_sync(int descriptor, const std::filesystem::path& path);
/// close(2). EINTR counts as success: the descriptor is closed, and durability is up to fsync.
int disk_close(int descriptor, const std::filesystem::path& path);
int disk_rename(const std::filesystem::path& from, const std::filesystem::path& to);
int disk_make_directory(const std::filesystem::path& path);
/// mkdirat(2) of the last name of `path`, below the open directory `parent`.
int disk_make_directory(int parent, const char* name, const std::filesystem::path& path,
                        mode_t mode);
int disk_sync_directory(int descriptor, const std::filesystem::path& path);
/// unlinkat(2) of the last name of `path`, below the open directory `parent` (or AT_FDCWD with all
/// of `path` as the name).
int disk_unlink(int parent, const char* name, const std::filesystem::path& path);
int disk_remove_directory(int parent, const char* name, const std::filesystem::path& path);

/// open(2) of an existing file with `flags` and O_CLOEXEC.
int disk_open_to_read(const std::filesystem::path& path, int flags);
/// read(2) and pread(2): may be short or interrupted.
ssize_t disk_read(int descriptor, const std::filesystem::path& path, std::span<std::byte> out);
ssize_t disk_read_at(int descriptor, const std::filesystem::path& path, std::span<std::byte> out,
                     std::uint64_t offset);

}  // namespace train::storage
