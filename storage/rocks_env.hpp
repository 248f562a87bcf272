#pragma once

#include <memory>

namespace rocksdb {
class Env;
}

namespace train::storage {

/// RocksDB environment that goes through file_calls.hpp, for tests: the hook sees writes, syncs,
/// renames and removals. Null if no installed hook wants that.
[[nodiscard]] std::shared_ptr<rocksdb::Env> hooked_rocks_env();

/// `env`, or RocksDB's own if null, without file locks, for file systems that have none: the caller
/// keeps other processes away, as a run's lock does.
[[nodiscard]] std::shared_ptr<rocksdb::Env> unlocked_rocks_env(
    const std::shared_ptr<rocksdb::Env>& env);

}  // namespace train::storage
