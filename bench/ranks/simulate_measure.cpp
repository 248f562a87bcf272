#include "bench/ranks/simulate_measure.hpp"

#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <functional>
#include <future>
#include <memory>
#include <numeric>
#include <stdexcept>

#include "engine/collective/tcp_transport.hpp"
#include "engine/parameter.hpp"
#include "engine/rank/exec/rank_engine.hpp"
#include "engine/rank/plan/run_device.hpp"
#include "tests/support/disks/file_store.hpp"

namespace train::bench {
namespace {

using namespace train::engine;
using Clock = std::chrono::steady_clock;
namespace fs = std::filesystem;

constexpr int kRepetitions = 5;

double seconds_of(const std::function<void()>& work) {
  const Clock::time_point begin = Clock::now();
  work();
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// Runs `measure` in `processes` processes at once, all starting when the last one is ready;
/// returns the doubles of the first one.
std::vector<double> in_processes(int processes, std::size_t count,
                                 const std::function<std::vector<double>(int)>& measure) {
  int ends[2];
  if (::pipe(ends) != 0) {
    throw std::runtime_error("no pipe");
  }
  std::vector<pid_t> children;
  for (int process = 0; process < processes; ++process) {
    const pid_t child = ::fork();
    if (child == 0) {
      bool good = false;
      try {
        const std::vector<double> found = measure(process);
        const auto size = static_cast<ssize_t>(found.size() * sizeof(double));
        good = process > 0 || ::write(ends[1], found.data(), std::size_t(size)) == size;
      } catch (const std::exception& error) {
        fmt::print(stderr, "{}\n", error.what());
      }
      ::_exit(good ? 0 : 1);
    }
    children.push_back(child);
  }
  ::close(ends[1]);
  std::vector<double> found(count);
  const auto size = static_cast<ssize_t>(count * sizeof(double));
  bool good = ::read(ends[0], found.data(), std::size_t(size)) == size;
  ::close(ends[0]);
  for (const pid_t child : children) {
    int status = 0;
    ::waitpid(child, &status, 0);
    good = good && status == 0;
  }
  if (!good) {
    throw std::runtime_error("a measuring process failed");
  }
  return found;
}

/// Engines with one lane per rank in one thread, run as in the plain loop, with a clock.
class Bench {
 public:
  Bench(RankOptions options, std::int64_t ranks)
      : stream_(kernels::make_thread_stream("compute", 1)) {
    options.parallel = {};
    options.parallel.ranks = options.batch.lanes = ranks;
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
      options.rank = rank;
      engines_.push_back(std::make_unique<RankEngine>(kernels_of("cpu", "fp32"), options));
      const auto tokens = static_cast<std::size_t>(options.batch.micro_batch * options.seq_len);
      for (std::size_t i = 0; i < tokens; ++i) {
        engines_.back()->lanes().slot_tokens(0)[i] = static_cast<std::int32_t>(97 + i * 7 % 26);
        engines_.back()->lanes().slot_targets(0)[i] =
            static_cast<std::int32_t>(97 + (i + 1) * 7 % 26);
      }
    }
  }

  RankEngine& rank(std::size_t rank) { return *engines_[rank]; }
  double timed(const std::function<void(kernels::Stream&)>& work) {
    return seconds_of([&] {
      work(*stream_);
      stream_->synchronize();
    });
  }
  /// Runs forward and backward of a rank's lane; appends each unit's time.
  void lane(std::size_t rank, std::vector<double>& forward, std::vector<double>& backward) {
    const auto number = static_cast<std::int64_t>(rank);
    const LaneWork work{.step = 0, .lane = number, .slot = 0, .round = 0};
    RankEngine& engine = *engines_[rank];
    const BufferSchedule& schedule = engine.schedule(kTrainStep);
    const auto place = [&](std::size_t visit) {
      return UnitBuffers{.gather = schedule.gather_of(visit),
                         .gradient_buffer = schedule.gradient_buffer_of(visit)};
    };
    for (std::size_t unit = 0; unit < engine.unit_count(); ++unit) {
      forward.push_back(timed([&](kernels::Stream& stream) {
        engine.lanes().forward(stream, unit, work, place(schedule.visit(0, false, unit)));
      }));
    }
    for (std::size_t unit = engine.unit_count(); unit-- > 0;) {
      backward.push_back(timed([&](kernels::Stream& stream) {
        engine.lanes().backward(stream, unit, work, place(schedule.visit(0, true, unit)));
      }));
    }
    std::reverse(backward.begin(), backward.end());
  }

 private:
  std::unique_ptr<kernels::Stream> stream_;
  std::vector<std::unique_ptr<RankEngine>> engines_;
};

double bytes_of(const ShardGroup& group) {
  return sizeof(float) * static_cast<double>(group.element_count);
}

double model_bytes(const ShardPlan& plan) {
  return std::accumulate(plan.groups().begin(), plan.groups().end(), 0.0,
                         [](double sum, const ShardGroup& one) { return sum + bytes_of(one); });
}

/// Median over repetitions, per unit; every block gets the mean of all blocks.
std::vector<double> by_unit(const std::vector<std::vector<double>>& repetitions) {
  std::vector<double> units;
  for (std::size_t unit = 0; unit < repetitions.front().size(); ++unit) {
    std::vector<double> values;
    for (const auto& repetition : repetitions) {
      values.push_back(repetition[unit]);
    }
    units.push_back(median(values));
  }
  const auto blocks = static_cast<double>(units.size() - 2);
  const double mean = std::accumulate(units.begin() + 1, units.end() - 1, 0.0) / blocks;
  std::fill(units.begin() + 1, units.end() - 1, mean);
  return units;
}

/// Times of a single rank: passes, norms, update.
KernelTimes measure_passes(const RankOptions& options) {
  Bench bench(options, 1);
  RankEngine& engine = bench.rank(0);
  const double bytes = model_bytes(engine.plan());
  std::vector<std::vector<double>> forward, backward;
  std::vector<double> norm, update, once;
  for (int i = -1; i < kRepetitions; ++i) {
    std::vector<double> forward_now, backward_now;
    bench.lane(0, forward_now, backward_now);
    const double norm_now = bench.timed([&](kernels::Stream& stream) {
      for (std::size_t group = 0; group < engine.plan().groups().size(); ++group) {
        engine.gradients().finish(stream, group);
      }
    });
    const double once_now =
        bench.timed([&](kernels::Stream& stream) { engine.totals().combine(stream, 0); });
    const double update_now = bench.timed([&](kernels::Stream& stream) {
      engine.updates().update(stream, ParameterGroup::decay, 0, {});
      engine.updates().update(stream, ParameterGroup::no_decay, 0, {});
      engine.state().finalize(stream);
    });
    if (i >= 0) {
      forward.push_back(forward_now);
      backward.push_back(backward_now);
      norm.push_back(norm_now / bytes);
      once.push_back(once_now);
      update.push_back(update_now / bytes);
    }
  }
  return {.forward = by_unit(forward),
          .backward = by_unit(backward),
          .norm_per_byte = median(norm),
          .update_per_byte = median(update),
          .once_per_step = median(once)};
}

/// Cost of packing and unpacking a reduction, with two ranks in one process.
void measure_packing(const RankOptions& options, KernelTimes& times) {
  Bench bench(options, 2);
  const ShardPlan& plan = bench.rank(0).plan();
  std::vector<double> copy, add;
  for (int i = -1; i < kRepetitions; ++i) {
    std::vector<double> ignored;
    for (const std::size_t rank : {0U, 1U}) {
      bench.lane(rank, ignored, ignored);
    }
    double pack = 0.0;
    double unpack = 0.0;
    for (const CollectiveOp& op : expand(plan, kTrainStep)) {
      if (op.kind != CollectiveKind::reduce) {
        continue;
      }
      for (const std::size_t rank : {0U, 1U}) {
        pack += bench.timed(
            [&](kernels::Stream& stream) { bench.rank(rank).exchanges().pack(stream, op); });
      }
      for (const std::size_t rank : {0U, 1U}) {
        const auto sent = bench.rank(1 - rank).exchanges().transfer(op).send[rank];
        const auto received = bench.rank(rank).exchanges().transfer(op).receive[1 - rank];
        std::memcpy(received.data(), sent.data(), sent.size());
        unpack += bench.timed(
            [&](kernels::Stream& stream) { bench.rank(rank).exchanges().unpack(stream, op); });
      }
    }
    for (const std::size_t rank : {0U, 1U}) {
      (void)bench.timed([&](kernels::Stream& stream) {
        for (std::size_t group = 0; group < plan.groups().size(); ++group) {
          bench.rank(rank).gradients().finish(stream, group);
        }
      });
    }
    if (i >= 0) {  // Each rank packs one whole sum and adds two halves.
      copy.push_back(pack / (2.0 * model_bytes(plan)));
      add.push_back(unpack / (2.0 * model_bytes(plan)));
    }
  }
  times.copy_per_byte = median(copy);
  times.add_per_byte = median(add);
}

double processor_seconds() {
  rusage usage = {};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

/// Wall and CPU time of one exchange of `size` bytes each way.
std::pair<double, double> exchange_times(Collectives& channel, int rank, std::size_t size,
                                         int times) {
  std::vector<std::byte> sent(size), received(size);
  static std::int64_t command = 0;
  std::vector<double> seconds;
  const double before = processor_seconds();
  for (int i = 0; i < times; ++i) {
    Transfer transfer;
    transfer.send.resize(2);
    transfer.receive.resize(2);
    transfer.send[static_cast<std::size_t>(1 - rank)] = sent;
    transfer.receive[static_cast<std::size_t>(1 - rank)] = received;
    std::promise<Status> ended;
    seconds.push_back(seconds_of([&] {
      channel.exchange({.generation = 1, .command = command++}, std::move(transfer),
                       [&](const Status& status) { ended.set_value(status); });
      if (const Status status = ended.get_future().get(); !status) {
        throw std::runtime_error(status.error().message);
      }
    }));
  }
  return {median(seconds), (processor_seconds() - before) / times};
}

}  // namespace

KernelTimes measure_kernels(const RankOptions& run, int processes) {
  const auto units = run.model.layers.size() + 2;
  const std::vector<double> found = in_processes(processes, 2 * units + 5, [&](int) {
    KernelTimes times = measure_passes(run);
    measure_packing(run, times);
    std::vector<double> all = times.forward;
    all.insert(all.end(), times.backward.begin(), times.backward.end());
    for (const double one : {times.copy_per_byte, times.add_per_byte, times.norm_per_byte,
                             times.update_per_byte, times.once_per_step}) {
      all.push_back(one);
    }
    return all;
  });
  const auto middle = found.begin() + static_cast<std::ptrdiff_t>(units);
  const auto end = middle + static_cast<std::ptrdiff_t>(units);
  return {.forward = {found.begin(), middle},
          .backward = {middle, end},
          .copy_per_byte = end[0],
          .add_per_byte = end[1],
          .norm_per_byte = end[2],
          .update_per_byte = end[3],
          .once_per_step = end[4]};
}

KernelTimes with_layers(KernelTimes times, std::int64_t layers) {
  const auto missing = static_cast<std::size_t>(layers + 2) - times.forward.size();
  times.forward.insert(times.forward.begin() + 1, missing, times.forward.at(1));
  times.backward.insert(times.backward.begin() + 1, missing, times.backward.at(1));
  return times;
}

double lane_seconds(const KernelTimes& times) {
  return std::accumulate(times.forward.begin(), times.forward.end(), 0.0) +
         std::accumulate(times.backward.begin(), times.backward.end(), 0.0);
}

LinkModel measure_loopback() {
  const fs::path directory =
      fs::temp_directory_path() / fmt::format("ranks_bench_link_{}", ::getpid());
  fs::create_directory(directory);
  const std::vector<double> found = in_processes(2, 3, [&](int rank) {
    const auto store = test::make_file_store(directory);
    TcpOptions options;
    options.rank = rank;
    options.world_size = 2;
    auto channels = make_tcp(*store, options);
    if (!channels) {
      throw std::runtime_error(channels.error().message);
    }
    Collectives& channel = *(*channels)[0];
    constexpr std::size_t kBytes = std::size_t{1} << 20;
    (void)exchange_times(channel, rank, kBytes, 10);
    const double small = exchange_times(channel, rank, 64, 200).first;
    const auto [large, processor] = exchange_times(channel, rank, kBytes, 200);
    return std::vector<double>{small, kBytes / (large - small), processor / (2 * kBytes)};
  });
  fs::remove_all(directory);
  return {.latency_seconds = found[0] / 2.0,
          .bytes_per_second = found[1],
          .message_seconds = 0.0,
          .processor_per_byte = found[2]};
}

}  // namespace train::bench
