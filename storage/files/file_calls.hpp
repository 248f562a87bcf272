#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string_view>

namespace train::storage {

// The calls through which storage/ and checkpoint/ change the disk (RocksDB's own files where a
// hook asks for them) and read whole files or checkpoints, as thin as the system's: they return
// what the system returns and set errno. A process-wide hook, which the product never installs,
// sees each of them: tests make them fail, record them, or end the process there. Without a hook a
// call costs one load more.

enum class FileCallKind : std::uint8_t {
  open,              ///< To write: the file is created if missing, emptied if opened so.
  write,             ///< Puts `bytes` at the end, or over what lies from `offset` on.
  truncate,          ///< To `size_bytes`.
  sync,              ///< fsync of a file.
  close,             ///< Of a file opened to write.
  rename,            ///< `path` to `to`.
  make_directory,    ///< One, not its parents.
  sync_directory,    ///< fsync of a directory: its entries.
  unlink,            ///< Of anything but a directory.
  remove_directory,  ///< An empty one.
  point,             ///< Changes nothing itself: a named instant, see file_point().
};

/// "open", "write", …
[[nodiscard]] std::string_view name_of(FileCallKind kind);

/// One call. The views live as long as the call.
struct FileCall {
  FileCallKind kind = FileCallKind::point;
  std::string_view path = {};             ///< As the caller gave it.
  std::string_view to = {};               ///< rename: the new name. point: the name of the point.
  std::span<const std::byte> bytes = {};  ///< write: to be written; afterwards: those that were.
  std::optional<std::uint64_t> offset = {};  ///< write: where to; none: at the end.
  std::uint64_t size_bytes = 0;              ///< truncate: the new size.
  bool empties = false;                      ///< open: drops the content that is there.
};

/// A call that opens a file to read it, or reads some of it.
struct FileRead {
  std::string_view path = {};    ///< As the caller gave it.
  std::uint64_t size_bytes = 0;  ///< Asked for; 0: the file is opened.
};

/// Sees every call. Threading: called from any thread, several at a time.
class FileCallHook {
 public:
  FileCallHook() = default;
  FileCallHook(const FileCallHook&) = delete;
  FileCallHook& operator=(const FileCallHook&) = delete;
  virtual ~FileCallHook() = default;

  /// 0: the call is made, with what `bytes` was shortened to (a short write). Otherwise an error
  /// number, with which it fails without being made; that of a point is ignored.
  virtual int before(FileCall& call) = 0;
  /// Once it has been made, with its error number or 0. Not for one that before() let fail.
  virtual void after(const FileCall& call, int error_number) = 0;
  /// 0: the call is made, for as many bytes as `size_bytes` was lowered to (0: as at the end of the
  /// file). Otherwise an error number, with which it fails without being made.
  virtual int before_read(FileRead& /*read*/) { return 0; }
  /// Whether a RocksDB that is opened from now on shows what it does with its files, too.
  [[nodiscard]] virtual bool sees_index() const { return false; }
};

/// Installs `hook` (borrowed until another is installed; nullptr: none) and returns the one before.
/// For tests. REQUIRES: no other thread changes the disk meanwhile.
FileCallHook* install_file_call_hook(FileCallHook* hook);

/// Whether a hook is installed that sees_index().
[[nodiscard]] bool hook_sees_index();
/// Asks the hook about a call that somebody else makes. Returns 0, with `call` as the hook left it,
/// or the error number to fail with.
int ask_hook(FileCall& call);

/// Names an instant, so that tests can stop the process there: "index-put", "rsync-start", ….
/// REQUIRES: `name` is a literal.
void file_point(std::string_view name, const std::filesystem::path& path);

/// open(2) with `flags`, O_CREAT and O_CLOEXEC, `mode` less the umask; repeated after EINTR.
int disk_open(const std::filesystem::path& path, int flags, mode_t mode = 0666);
/// write(2) of a file that is only added to: may be short, may be interrupted. disk_write_all() is
/// what most callers want.
ssize_t disk_write(int descriptor, const std::filesystem::path& path,
                   std::span<const std::byte> bytes);
/// All of `bytes`, however many calls that takes. Returns 0, or -1 with errno.
int disk_write_all(int descriptor, const std::filesystem::path& path,
                   std::span<const std::byte> bytes);
/// The same over what lies from `offset` on.
int disk_write_all_at(int descriptor, const std::filesystem::path& path,
                      std::span<const std::byte> bytes, std::uint64_t offset);
int disk_truncate(int descriptor, const std::filesystem::path& path, std::uint64_t size_bytes);
/// fsync(2), repeated after EINTR. After any other failure the system may forget which pages were
/// not written and a second fsync may lie: abandon the file.
int disk_sync(int descriptor, const std::filesystem::path& path);
/// close(2). EINTR counts as done: the descriptor is gone, and the bytes are fsync's business.
int disk_close(int descriptor, const std::filesystem::path& path);
int disk_rename(const std::filesystem::path& from, const std::filesystem::path& to);
int disk_make_directory(const std::filesystem::path& path);
/// mkdirat(2) of the last name of `path`, below the directory that `parent` is open on.
int disk_make_directory(int parent, const char* name, const std::filesystem::path& path,
                        mode_t mode);
int disk_sync_directory(int descriptor, const std::filesystem::path& path);
/// unlinkat(2) of the last name of `path`, below the directory that `parent` is open on (or
/// AT_FDCWD and all of `path` as the name).
int disk_unlink(int parent, const char* name, const std::filesystem::path& path);
int disk_remove_directory(int parent, const char* name, const std::filesystem::path& path);

/// open(2) with `flags` and O_CLOEXEC of a file that is there.
int disk_open_to_read(const std::filesystem::path& path, int flags);
/// read(2) and pread(2): may be short, may be interrupted.
ssize_t disk_read(int descriptor, const std::filesystem::path& path, std::span<std::byte> out);
ssize_t disk_read_at(int descriptor, const std::filesystem::path& path, std::span<std::byte> out,
                     std::uint64_t offset);

}  // namespace train::storage
