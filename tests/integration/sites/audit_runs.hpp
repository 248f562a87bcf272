#pragma once

#include <algorithm>

#include "checkpoint/index/index_content.hpp"
#include "checkpoint/index/step_journal.hpp"
#include "storage/rocks_store.hpp"
#include "storage/safetensors.hpp"
#include "tests/integration/sites/rank_runs.hpp"

// Runs whose journals and checkpoints are looked into, and tampered with.
namespace train::test {

/// Opens the index of a run that is over.
inline std::unique_ptr<storage::RocksStore> open_store(const fs::path& run) {
  auto store = storage::RocksStore::open(run / "index");
  REQUIRE(store.ok());
  return std::move(store).value();
}

inline checkpoint::StepJournal journal_of(const fs::path& run) {
  const auto store = open_store(run);
  auto journal = checkpoint::read_step_journal(*store);
  REQUIRE(journal.ok());
  CHECK(journal->unreadable.empty());
  return std::move(journal).value();
}

/// Writes another record of a step into the journal.
template <class Change>
void tamper(const fs::path& run, std::int64_t step, Change change) {
  checkpoint::StepRecord record = journal_of(run).steps.at(step);
  change(record);
  storage::WriteBatch batch;
  checkpoint::put_step(batch, record);
  REQUIRE(open_store(run)->write(batch, storage::Durability::synced).ok());
}

/// Takes a record out of the index.
inline void erase(const fs::path& run, std::string_view prefix, std::int64_t number) {
  REQUIRE(open_store(run)
              ->remove(checkpoint::index_keys::of(prefix, number), storage::Durability::synced)
              .ok());
}

/// Names of the tensors of a checkpoint, in the order of the journal's digests.
inline Words tensors_of(const fs::path& run, std::int64_t step) {
  Words names;
  for (const checkpoint::TensorRecord& tensor : manifest_of(run, step).tensors) {
    if (names.empty() || names.back() != tensor.name) {
      names.push_back(tensor.name);
    }
  }
  return names;
}

/// Changes one byte of one weight in the checkpoint of `step`; returns its tensor's name.
inline std::string flip_a_weight(const fs::path& run, std::int64_t step) {
  const auto manifest = manifest_of(run, step);
  const auto tensor = std::find_if(
      manifest.tensors.begin(), manifest.tensors.end(),
      [](const checkpoint::TensorRecord& one) { return one.name.starts_with("model."); });
  REQUIRE(tensor != manifest.tensors.end());
  const fs::path file = run / "checkpoints" / checkpoint::checkpoint_name(step) / tensor->file;
  auto opened = storage::SafetensorsFile::open(file);
  REQUIRE(opened.ok());
  const storage::TensorEntry* entry = opened->find(tensor->name);
  REQUIRE(entry != nullptr);
  std::string bytes = read_bytes(file);
  bytes.at(opened->data_start() + entry->begin) ^= 1;
  write_bytes(file, bytes);
  return tensor->name;
}

/// The command finds something: exit code 1, and a line with all of `parts`.
inline void check_found(const RunSite& site, const Words& words, const Words& parts) {
  const Ended ended = site.call(words);
  INFO("stdout: " << ended.out << "stderr: " << ended.err);
  CHECK(ended.exit_code == 1);
  const Words lines = lines_of(ended.out + ended.err);
  CHECK(std::any_of(lines.begin(), lines.end(), [&](const std::string& line) {
    return std::all_of(parts.begin(), parts.end(),
                       [&](const std::string& part) { return has(line, part); });
  }));
  for (const std::string& part : parts) {
    INFO("wanted: " << part);
    CHECK(has(ended.out + ended.err, part));
  }
}

/// The command finds nothing: exit code 0 and one line on stdout, which has all of `parts`.
inline void check_same(const RunSite& site, const Words& words, const Words& parts) {
  const auto before = tree_of(site.path());
  const Ended ended = site.call(words);
  INFO("stdout: " << ended.out << "stderr: " << ended.err);
  CHECK(ended.exit_code == 0);
  CHECK(ended.err.empty());
  CHECK(lines_of(ended.out).size() == 1);
  for (const std::string& part : parts) {
    INFO("wanted: " << part);
    CHECK(has(ended.out, part));
  }
  CHECK(tree_of(site.path()) == before);  // it only reads
}

}  // namespace train::test
