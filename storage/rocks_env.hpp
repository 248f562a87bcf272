#pragma once

#include <memory>

namespace rocksdb {
class Env;
}

namespace train::storage {

/// RocksDB's view of the disk through the calls of file_calls.hpp, for tests: their hook sees what
/// it writes, syncs, renames and removes. Null: no hook is installed that wants to.
[[nodiscard]] std::shared_ptr<rocksdb::Env> hooked_rocks_env();

}  // namespace train::storage
