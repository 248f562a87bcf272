#pragma once

#include <memory>

namespace rocksdb {
class Env;
}

namespace train::storage {

/// RocksDB's view of the disk through the calls of file_calls.hpp, for tests: their hook sees what
/// it writes, syncs, renames and removes. Null: no hook is installed that wants to.
[[nodiscard]] std::shared_ptr<rocksdb::Env> hooked_rocks_env();

/// `env`, or RocksDB's own where that is null, for a file system that has no locks to give:
/// whoever opens a store there sees to it that nobody else does, as the lock of a run does.
[[nodiscard]] std::shared_ptr<rocksdb::Env> unlocked_rocks_env(std::shared_ptr<rocksdb::Env> env);

}  // namespace train::storage
