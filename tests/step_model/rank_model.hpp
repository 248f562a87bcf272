#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <vector>

#include "engine/sharding/buffer_reservations.hpp"
#include "tests/step_model/exchange_sizes.hpp"
#include "tests/step_model/model_stream.hpp"
#include "tests/step_model/step_model.hpp"

namespace train::engine {

/// One collective of one modelled step at one rank.
struct ModelledOp {
  std::int64_t step = 0;
  const CollectiveOp* op = nullptr;
};

/// What all modelled ranks share. `post`: a rank is ready to exchange the bytes of an op; when they
/// have arrived, its moved() is to be called.
struct ModelContext {
  EventQueue events;
  const ExchangeSizes* sizes = nullptr;
  const StepModelOptions* options = nullptr;
  std::array<std::vector<CollectiveOp>, kChannelCount> ops;  // of a training step
  std::function<void(std::int64_t rank, const ModelledOp& op)> post;
};

/// One rank of the model: lanes, reservations, channels with their staging slots, one compute
/// stream; it takes the decisions of the rank's actors, at once. Borrows `context`; must not move
/// once begun.
class RankModel {
 public:
  RankModel(ModelContext& context, std::int64_t rank);

  void begin_step(std::int64_t step);
  /// The bytes of the front op of `channel` have arrived.
  void moved(Channel channel);
  [[nodiscard]] ModelStream& stream() { return stream_; }

  /// When step s had run on the stream, and how long the stream had been busy until then.
  struct End {
    double time = 0.0;
    double busy_seconds = 0.0;
  };
  [[nodiscard]] const std::vector<End>& ends() const { return ends_; }

 private:
  enum class Progress : std::uint8_t { due, packing, packed, moving };
  struct Operation {
    ModelledOp op;
    Progress progress = Progress::due;
  };
  struct ChannelState {
    std::vector<bool> requested;  // by op of the whole run
    std::size_t due = 0;
    std::deque<Operation> operations;
    std::uint32_t staged = 0;
  };

  [[nodiscard]] const ShardPlan& plan() const { return context_->sizes->plan(); }
  [[nodiscard]] const BufferSchedule& schedule() const { return context_->sizes->schedule(); }
  [[nodiscard]] const KernelTimes& times() const { return context_->options->kernels; }
  [[nodiscard]] ChannelState& channel(Channel which) {
    return channels_[static_cast<std::size_t>(which)];
  }

  void launch_lane();
  void proceed();
  [[nodiscard]] bool may_run(std::size_t visit);
  void run_visit(std::size_t visit);
  [[nodiscard]] double visit_seconds(const Visit& visit) const;
  void start_gathers();

  [[nodiscard]] const CollectiveOp* find(CollectiveKind kind, std::int64_t group,
                                         std::int64_t part) const;
  bool request(CollectiveKind kind, std::int64_t group = -1, std::int64_t part = -1);
  void start(Channel which);
  void pack(Operation& operation);
  void move(Channel which);
  [[nodiscard]] double pack_seconds(const CollectiveOp& op) const;
  [[nodiscard]] double unpack_seconds(const CollectiveOp& op) const;
  void finished(const CollectiveOp& op);

  void reduce(std::int64_t group, std::int64_t sync);
  void reduced(std::size_t group);
  void combine();
  void gradient_broadcast();
  void update_if_ready();

  ModelContext* context_;
  std::int64_t rank_;
  ModelStream stream_;
  std::array<ChannelState, kChannelCount> channels_;
  std::optional<BufferReservations> reservations_;
  std::vector<bool> stale_;           // by group: its refresh is under way
  std::vector<std::int64_t> rounds_;  // with a lane of this rank

  std::int64_t step_ = 0;
  std::size_t next_lane_ = 0;
  int lanes_in_flight_ = 0;
  bool chain_busy_ = false, proceeding_ = false, again_ = false;
  std::size_t visit_ = 0, visits_end_ = 0;
  std::size_t gradients_ready_ = 0, gradients_broadcast_ = 0;
  bool combined_ = false;
  std::vector<End> ends_;
};

}  // namespace train::engine
