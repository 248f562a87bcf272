#include "data/tokens/dstar_order.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <mutex>
#include <optional>
#include <utility>
#include <variant>

#include "base/check.hpp"
#include "data/tokens/numpy_random.hpp"

namespace train::data {
namespace {

constexpr std::uint64_t kSeedsPerFile = 1000;

/// Sequences per epoch: one is given up, so that every offset below T fits.
std::uint64_t sequences_of(std::uint64_t tokens, std::uint64_t length) {
  const std::uint64_t starts = tokens > length + 1 ? tokens - length - 1 : 0;
  return starts / length == 0 ? 0 : starts / length - 1;
}

struct Shuffle {
  std::uint64_t seed;
  std::variant<std::vector<std::uint32_t>, std::vector<std::uint64_t>> order;
  std::uint64_t offset;

  Shuffle(std::uint64_t shuffle_seed, std::uint64_t sequences, std::uint64_t length)
      : seed(shuffle_seed) {
    NumpyGenerator random(seed);
    if (sequences - 1 <= std::numeric_limits<std::uint32_t>::max()) {
      order = random.permutation<std::uint32_t>(sequences);
    } else {
      order = random.permutation<std::uint64_t>(sequences);
    }
    offset = random.integers(length);
  }

  [[nodiscard]] std::uint64_t sequence(std::uint64_t index) const {
    return std::visit([index](const auto& all) { return std::uint64_t{all[index]}; }, order);
  }
};

struct Span {
  std::uint64_t sequences;
  std::uint64_t batches_before;  ///< Batches of earlier files.
};

}  // namespace

struct DstarOrder::State {
  Options options;
  std::vector<Span> files;
  std::uint64_t batches = 0;
  std::mutex mutex;
  std::optional<Shuffle> shuffle;  ///< Latest permutation; guarded by `mutex`.
  std::size_t shuffled_file = 0;   ///< File of that permutation.
};

DstarOrder::DstarOrder(std::unique_ptr<State> state) : state_(std::move(state)) {}
DstarOrder::DstarOrder(DstarOrder&&) noexcept = default;
DstarOrder& DstarOrder::operator=(DstarOrder&&) noexcept = default;
DstarOrder::~DstarOrder() = default;

Result<DstarOrder> DstarOrder::make(const std::vector<File>& files, const Options& options) {
  TRAIN_CHECK(!files.empty() && options.sequence_length >= 1 && options.micro_batch >= 1);
  auto state = std::make_unique<State>();
  state->options = options;
  for (const File& file : files) {
    const std::uint64_t sequences = sequences_of(file.tokens, options.sequence_length);
    if (sequences < options.micro_batch) {
      return user_error(
          fmt::format("{}: {} tokens give {} sequences of {} in data.order \"dstar\", fewer than "
                      "batch.micro_batch ({}); give more text, or lower one of them",
                      file.path.string(), file.tokens, sequences, options.sequence_length,
                      options.micro_batch));
    }
    state->files.push_back({sequences, state->batches});
    state->batches += sequences / options.micro_batch;
  }
  return DstarOrder(std::move(state));
}

std::uint64_t DstarOrder::batches() const { return state_->batches; }

DstarOrder::Place DstarOrder::place(std::uint64_t batch, std::uint64_t row) const {
  State& state = *state_;
  const Options& options = state.options;
  TRAIN_CHECK(row < options.micro_batch, "row {} of {}", row, options.micro_batch);
  const std::uint64_t within = batch % state.batches;
  const auto after = std::upper_bound(
      state.files.begin(), state.files.end(), within,
      [](std::uint64_t wanted, const Span& span) { return wanted < span.batches_before; });
  const Span& span = *std::prev(after);
  const auto file = static_cast<std::size_t>(&span - state.files.data());
  const std::uint64_t epoch = state.files.size() == 1 ? batch / state.batches : 0;
  const std::uint64_t seed = options.seed + epoch + kSeedsPerFile * file;
  const std::lock_guard lock(state.mutex);
  if (!state.shuffle || state.shuffle->seed != seed || state.shuffled_file != file) {
    state.shuffle.reset();  // Reset first, so that only one permutation exists at a time.
    state.shuffle.emplace(seed, span.sequences, options.sequence_length);
    state.shuffled_file = file;
  }
  const std::uint64_t index = (within - span.batches_before) * options.micro_batch + row;
  return {file, state.shuffle->sequence(index) * options.sequence_length + state.shuffle->offset};
}

}  // namespace train::data
