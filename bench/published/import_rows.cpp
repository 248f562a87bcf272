// Cost of starting from a published model beyond reading its bytes: an 8 B model in bf16, one rank
// of four with "full", one group of units after the other, each released before the next (all
// together need 32 GB). Files of zeros: sparse ones (only memory is moved), and written ones that
// are not cached (the disk reads them).
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "base/process/descriptor.hpp"
#include "bench/published/import_rows.hpp"
#include "checkpoint/models/published_weights.hpp"
#include "configs/models/shipped_models.hpp"
#include "engine/model/architectures/architectures.hpp"
#include "engine/rank/plan/rank_plan.hpp"
#include "engine/rank/state/group_state.hpp"
#include "kernels/backend.hpp"
#include "storage/safetensors.hpp"
#include "tests/support/inputs/zero_model.hpp"

namespace train::bench {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMiB = std::size_t{1} << 20;
constexpr int kRounds = 5;
constexpr int kRanks = 4;

double seconds_of(const auto& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

engine::ModelSpec spec_of(const std::string& wanted) {
  for (const configs::ShippedModel& model : configs::shipped_models()) {
    if (model.name == wanted) {
      return engine::spec_from_config(std::string(model.config_json), wanted, 0).value();
    }
  }
  throw std::runtime_error("no shape " + wanted);
}

engine::RankOptions one_rank(const engine::ModelSpec& spec) {
  engine::RankOptions options;
  options.model = spec;
  options.seq_len = 8;
  options.batch.lanes = kRanks;
  options.batch.micro_batch = 1;
  options.total_steps = 10;
  options.parallel.ranks = kRanks;
  options.parallel.strategy = "full";
  options.parallel.wrapping = {"per_block"};
  options.rank = 1;
  return options;
}

/// Contiguous bytes of a file.
struct Extent {
  fs::path file;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

/// Extents of the rank's rows.
std::vector<Extent> extents_of(const engine::RankPlan& plan, const fs::path& directory) {
  std::vector<storage::SafetensorsFile> files;
  for (const auto& entry : fs::directory_iterator(directory)) {
    if (entry.path().extension() == ".safetensors") {
      files.push_back(storage::SafetensorsFile::open(entry.path()).value());
    }
  }
  std::vector<Extent> extents;
  for (std::size_t group = 0; group < plan.group_count(); ++group) {
    for (const engine::Segment& segment : plan.layout(group).state.segments) {
      const engine::Parameter& parameter = plan.group(group).parameters[segment.parameter];
      for (const storage::SafetensorsFile& file : files) {
        if (const storage::TensorEntry* entry = file.find(parameter.name)) {
          const std::uint64_t begin =
              file.data_start() + entry->begin +
              2 * static_cast<std::uint64_t>(segment.first_row * parameter.cols());
          extents.push_back(
              {file.file().path(), begin, begin + 2 * static_cast<std::uint64_t>(segment.count)});
        }
      }
    }
  }
  return extents;
}

/// Reads them with plain calls, into the same MiB over and over.
void read_plainly(const std::vector<Extent>& extents) {
  std::vector<char> piece(kMiB);
  for (const Extent& extent : extents) {
    const Descriptor file(::open(extent.file.c_str(), O_RDONLY | O_CLOEXEC));
    for (std::uint64_t at = extent.begin; at < extent.end;) {
      const std::size_t wanted = std::min<std::uint64_t>(kMiB, extent.end - at);
      const ssize_t got = ::pread(file.get(), piece.data(), wanted, static_cast<off_t>(at));
      if (got <= 0) {
        throw std::runtime_error("cannot read " + extent.file.string());
      }
      at += static_cast<std::uint64_t>(got);
    }
  }
}

/// Drops the files from the page cache.
void forget(const fs::path& directory) {
  for (const auto& entry : fs::directory_iterator(directory)) {
    const Descriptor file(::open(entry.path().c_str(), O_RDONLY | O_CLOEXEC));
    ::fdatasync(file.get());
    ::posix_fadvise(file.get(), 0, 0, POSIX_FADV_DONTNEED);
  }
}

void write_out(const fs::path& directory) {
  const std::vector<char> zeros(kMiB);
  for (const auto& entry : fs::directory_iterator(directory)) {
    if (entry.path().extension() != ".safetensors") {
      continue;
    }
    const Descriptor file(::open(entry.path().c_str(), O_WRONLY | O_CLOEXEC));
    const auto size = static_cast<off_t>(fs::file_size(entry.path()));
    for (off_t at = kMiB; at < size; at += kMiB) {  // The header is in the first.
      const auto count = static_cast<std::size_t>(std::min<off_t>(kMiB, size - at));
      if (::pwrite(file.get(), zeros.data(), count, at) != static_cast<ssize_t>(count)) {
        throw std::runtime_error("cannot write " + entry.path().string());
      }
    }
  }
}

void measure(const std::string& name, const fs::path& directory, const engine::ModelSpec& spec,
             bool cold) {
  engine::RankOptions options = one_rank(spec);
  Values reading, starting, beyond;
  for (int round = 0; round < kRounds; ++round) {
    auto opened = checkpoint::PublishedWeights::open(directory, spec);
    options.init.source = std::move(opened).value();
    const engine::RankPlan plan(kernels::cpu_backend(), options);
    const std::vector<Extent> extents = extents_of(plan, directory);
    cold ? forget(directory) : void();
    reading.add(seconds_of([&] { read_plainly(extents); }));
    cold ? forget(directory) : void();
    double seconds = 0.0;
    for (std::size_t i = 0; i < plan.group_count(); ++i) {
      engine::GroupState group(plan.kernels(), plan.group(i), plan.layout(i), plan.optimizer(),
                               plan.layout().compute_weights(), plan.layout().offload());
      seconds += seconds_of([&] { group.initialise(spec, options.init); });
    }
    starting.add(seconds);
    beyond.add(seconds / reading.all.back() - 1.0);
  }
  print_result(name + ": reading the rank's bytes, s", reading.text(2));
  print_result(name + ": the rank's weights in its memory, fp32, s", starting.text(2));
  print_at_most(name + ": beyond reading", beyond, 0.10);
}

}  // namespace

void start_row(const Workplace& place) {
  const engine::ModelSpec spec = spec_of("llama-3.1-8b");
  const fs::path directory = place.directory() / "zeros";
  fs::create_directory(directory);
  test::write_zeros(directory, spec, 4096 * kMiB);
  measure("llama-3.1-8b, sparse", directory, spec, false);
  write_out(directory);
  measure("llama-3.1-8b, from the disk", directory, spec, true);
}

}  // namespace train::bench
