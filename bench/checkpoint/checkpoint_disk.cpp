// Rows on bytes to and from the disk.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <fstream>
#include <functional>
#include <memory>
#include <stdexcept>

#include "bench/checkpoint/checkpoint_rows.hpp"
#include "checkpoint/load/reader.hpp"
#include "checkpoint/save/writer.hpp"
#include "storage/safetensors.hpp"
#include "tests/support/checkpoints/whole_checkpoint.hpp"
#include "tests/support/checkpoints/whole_safetensors.hpp"

namespace train::bench {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

double seconds_of(const std::function<void()>& work) {
  const auto begin = Clock::now();
  work();
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

template <class Value>
Value value_or_throw(Result<Value> result) {
  if (!result) {
    throw std::runtime_error(result.error().message);
  }
  return *std::move(result);
}

void check(bool fine, const char* what) {
  if (!fine) {
    throw std::runtime_error(what);
  }
}

/// Incompressible bytes.
std::vector<std::byte> noise(std::size_t size) {
  std::vector<std::byte> bytes(size);
  std::uint64_t state = 88172645463325252U;
  for (std::size_t i = 0; i + sizeof(state) <= size; i += sizeof(state)) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    for (std::size_t byte = 0; byte < sizeof(state); ++byte) {
      bytes[i + byte] = static_cast<std::byte>(state >> (8 * byte));
    }
  }
  return bytes;
}

constexpr std::size_t kTensors = 16;
constexpr std::int64_t kRows = 1 << 14;
constexpr std::int64_t kColumns = 1 << 10;  // 64 MiB per tensor, 1 GiB in total.

/// Writes equal bytes with plain calls: the speed of the disk itself.
void write_raw(const fs::path& path, std::span<const std::byte> bytes) {
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  check(file >= 0, "cannot open");
  for (std::size_t i = 0; i < kTensors; ++i) {
    std::span<const std::byte> left = bytes;
    while (!left.empty()) {
      const ssize_t written =
          ::write(file, left.data(), std::min(left.size(), std::size_t{8} << 20));
      check(written > 0, "cannot write");
      left = left.subspan(static_cast<std::size_t>(written));
    }
  }
  check(::fsync(file) == 0 && ::close(file) == 0, "cannot sync");
}

double bytes_read_so_far() {
  std::ifstream lines("/proc/self/io");
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("rchar:")) {
      return std::stod(line.substr(6));
    }
  }
  throw std::runtime_error("no /proc/self/io");
}

/// State with the proportions of a model of 8 x 512: weights and two moments.
class ModelState {
 public:
  ModelState() {
    for (const char* kind : {"model.", "optimizer.exp_avg.", "optimizer.exp_avg_sq."}) {
      for (int layer = 0; layer < 8; ++layer) {
        for (const auto& [name, rows, columns] : {std::tuple{"attn.c_attn", 1536, 512},
                                                  {"attn.c_proj", 512, 512},
                                                  {"mlp.c_fc", 2048, 512},
                                                  {"mlp.c_proj", 512, 2048},
                                                  {"ln_1", 512, 1}}) {
          add(fmt::format("{}h.{}.{}.weight", kind, layer, name), rows, columns);
        }
      }
      add(fmt::format("{}wte.weight", kind), 320, 512);
    }
    bytes_ = noise(size_);
  }

  [[nodiscard]] double size_bytes() const { return static_cast<double>(size_); }

  /// Rows of every tensor for rank `rank`; adds their size to `rows_bytes`.
  std::vector<engine::StateView> views(std::int64_t rank, std::int64_t ranks, double& rows_bytes) {
    std::vector<engine::StateView> views;
    for (const Tensor& tensor : tensors_) {
      const std::int64_t first = tensor.rows * rank / ranks;
      const std::int64_t rows = tensor.rows * (rank + 1) / ranks - first;
      const std::size_t row = static_cast<std::size_t>(tensor.columns) * sizeof(float);
      views.push_back({tensor.name,
                       {tensor.rows, tensor.columns},
                       first,
                       rows,
                       bytes_.data() + tensor.begin + static_cast<std::size_t>(first) * row,
                       static_cast<std::size_t>(rows) * row});
      rows_bytes += static_cast<double>(views.back().size_bytes);
    }
    return views;
  }

 private:
  struct Tensor {
    std::string name;
    std::int64_t rows;
    std::int64_t columns;
    std::size_t begin;
  };
  void add(std::string name, std::int64_t rows, std::int64_t columns) {
    tensors_.push_back({std::move(name), rows, columns, size_});
    size_ += static_cast<std::size_t>(rows * columns) * sizeof(float);
  }

  std::vector<Tensor> tensors_;
  std::size_t size_ = 0;
  std::vector<std::byte> bytes_;
};

checkpoint::WriteOutcome write_shards(const fs::path& checkpoints, ModelState& state,
                                      std::int64_t ranks) {
  test::CheckpointOfOneProcess incoming(checkpoints, 1);
  std::vector<checkpoint::ShardRecord> shards;
  double ignored = 0.0;
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    shards.push_back(
        value_or_throw(incoming.write_shard(state.views(rank, ranks, ignored), {rank, ranks})));
  }
  checkpoint::ManifestFields fields;
  fields.step = 1;
  return value_or_throw(incoming.publish(fields, shards));
}

/// Measures one rank of `ranks` reading its rows from a checkpoint of `writers` ranks.
void show_restore(const fs::path& home, ModelState& state, std::int64_t writers,
                  std::int64_t ranks) {
  const fs::path checkpoints = home / fmt::format("of{}", writers);
  if (!fs::exists(checkpoints)) {
    (void)write_shards(checkpoints, state, writers);
  }
  Values find_s;
  Values restore_s;
  Values ratio;
  for (int round = 0; round < 3; ++round) {
    checkpoint::SearchReport found;
    find_s.add(seconds_of(
        [&] { found = value_or_throw(checkpoint::find_newest_read_only(checkpoints)); }));
    double kept = 0.0;
    std::vector<engine::StateView> views = state.views(ranks / 2, ranks, kept);
    const double before = bytes_read_so_far();
    restore_s.add(seconds_of([&] {
      check(checkpoint::restore(found.newest->candidate.path, found.newest->manifest, views).ok(),
            "cannot restore");
    }));
    ratio.add((bytes_read_so_far() - before) / kept);
  }
  const std::string name = fmt::format("{} shards, one of {} ranks", writers, ranks);
  print_result(fmt::format("{}: find and verify all, s", name), find_s.text(3));
  print_result(fmt::format("{}: restore, s", name), restore_s.text(3));
  print_at_most(fmt::format("{}: bytes read / bytes kept", name), ratio, 1.1);
}

}  // namespace

void write_row(const Workplace& place) {
  const std::vector<std::byte> bytes = noise(static_cast<std::size_t>(kRows * kColumns) * 4);
  std::vector<test::TensorBytes> tensors;
  for (std::size_t i = 0; i < kTensors; ++i) {
    tensors.push_back({fmt::format("t{}", i), {kRows, kColumns}, bytes});
  }
  const fs::path path = place.directory() / "shard";
  const double size = static_cast<double>(bytes.size() * kTensors);
  Values raw;
  Values ours;
  Values ratio;
  for (int round = 0; round < 5; ++round) {
    const auto measure_raw = [&] {
      raw.add(size * 1e-6 / seconds_of([&] { write_raw(path, bytes); }));
      fs::remove(path);
    };
    const auto measure_ours = [&] {
      ours.add(size * 1e-6 / seconds_of([&] {
                 check(test::write_safetensors(path, tensors).ok(), "cannot write");
               }));
      fs::remove(path);
    };
    round % 2 == 0 ? measure_raw() : measure_ours();
    round % 2 == 0 ? measure_ours() : measure_raw();
    ratio.add(ours.all.back() / raw.all.back());
  }
  print_result("1 GiB, plain write and fsync, MB/s", raw.text(0));
  print_result("1 GiB, write_safetensors, MB/s", ours.text(0));
  print_at_least("write_safetensors / plain", ratio, 0.8);
}

void resume_row(const Workplace& place) {
  ModelState state;
  print_result("state, MB", fmt::format("{:.1f}", state.size_bytes() * 1e-6));
  show_restore(place.directory(), state, 1, 1);
  show_restore(place.directory(), state, 1, 4);
  show_restore(place.directory(), state, 4, 1);
  show_restore(place.directory(), state, 3, 8);
}

}  // namespace train::bench
