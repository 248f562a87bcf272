#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/host_state.hpp"
#include "engine/lanes/lane_tree.hpp"
#include "engine/model/model.hpp"
#include "engine/optimizer/exact_sum.hpp"
#include "engine/parameter.hpp"

namespace train::kernels {

struct KernelTable;
struct UpdateGuard;

}  // namespace train::kernels

namespace train::engine {

/// Most state tensors that an optimizer keeps of one parameter, its average included.
inline constexpr std::size_t kMostStates = 4;

/// Rows of one parameter as an optimizer sees them: contiguous fp32, all of the same rows.
struct OptimizerSlice {
  const Parameter* parameter = nullptr;
  std::int64_t rows = 0;
  float* weights = nullptr;
  std::uint16_t* rounded = nullptr;  ///< bf16 copy of `weights`, where Optimizer::rounds() is true.
  const float* gradient = nullptr;
  std::array<float*, kMostStates> states{};  ///< In the order of Optimizer::states().
  /// [rows][Optimizer::row_sums().size()]; nullptr: not requested.
  double* row_sums = nullptr;

  [[nodiscard]] std::int64_t count() const { return rows * parameter->cols(); }
};

/// One update, the same of all slices of a weight-decay group.
struct OptimizerStep {
  const kernels::KernelTable* kernels = nullptr;
  const kernels::UpdateGuard* guard = nullptr;  ///< Clip factor; non-finite: nothing changes.
  std::int64_t step = 1;                        ///< From 1.
  double lr = 0.0;
  double peak_lr = 0.0;
  bool decayed = false;          ///< The weights are of the decay group.
  bool diagnosed = false;        ///< Fill row_sums.
  std::byte* scratch = nullptr;  ///< The most that scratch_bytes() asks for; 64-byte aligned.
};

/// A quantity of the whole model, worked out of the global sums.
struct OptimizerDiagnostic {
  std::string_view name;  ///< "alpha"; a metric is called "optimizer/alpha".
  double value = 0.0;
};

/// Optimizer: the state tensors of each parameter and the update of weights. Holds options alone,
/// no state: cheap to make, so that plans ask it too. Pure and thread-safe except update().
class Optimizer {
 public:
  using Names = std::vector<std::string_view>;

  virtual ~Optimizer() = default;

  /// Names of the state tensors of a parameter, fp32 of its shape and zero at the start; a
  /// checkpoint calls them "optimizer.<state>.<parameter>". Most parameters' first.
  [[nodiscard]] virtual const Names& states(const Parameter& parameter) const = 0;

  /// The update couples all elements of the parameter, so one owner must have all its rows.
  [[nodiscard]] virtual bool whole(const Parameter& /*parameter*/) const { return false; }

  /// True if an update also writes OptimizerSlice::rounded where it is not null; otherwise the
  /// caller has to round the weights after the update.
  [[nodiscard]] virtual bool rounds() const { return false; }

  /// Scratch bytes of an update of the parameter and of those updated together with it; one buffer
  /// serves all. `knows_bf16`: the device's (kernels::Device).
  [[nodiscard]] virtual std::size_t scratch_bytes(const Parameter& /*parameter*/,
                                                  bool /*knows_bf16*/) const {
    return 0;
  }

  /// Names of the sums over the elements of a row that an update can write, in double and in an
  /// order that depends on the number of columns alone. Empty: it has none.
  [[nodiscard]] virtual std::span<const std::string_view> row_sums() const { return {}; }
  /// Diagnostics of `sums` over all updated rows of the model. REQUIRES: one per row_sums().
  [[nodiscard]] virtual std::vector<OptimizerDiagnostic> diagnose(
      std::span<const double> /*sums*/) const {
    return {};
  }

  /// Enqueues one update of each slice. An element's bits do not depend on which other rows are in
  /// the slice, nor on the other slices. REQUIRES: a whole() parameter comes with all its rows;
  /// where it is diagnosed no row sums are two slices'.
  virtual void update(kernels::Stream& stream, std::span<const OptimizerSlice> slices,
                      const OptimizerStep& step) const = 0;

 protected:
  Optimizer() = default;
  Optimizer(const Optimizer&) = default;
  Optimizer& operator=(const Optimizer&) = default;
};

/// Diagnostics from the sums of all ranks, added up: exact whatever the sharding, rounded once.
/// None of no sums.
[[nodiscard]] std::vector<OptimizerDiagnostic> diagnose(const Optimizer& optimizer,
                                                        std::span<const ExactSum> sums);

/// Names of the model's parameters that want one owner, in the order of the model.
[[nodiscard]] std::vector<std::string> whole_parameters(const Optimizer& optimizer,
                                                        std::span<const UnitParameters> units);

/// The parameters of one weight-decay group, updated together.
/// Ownership: borrows all memory. Threading: one owner; calls only enqueue.
class OptimizerGroup {
 public:
  OptimizerGroup(const kernels::KernelTable& kernels, const Optimizer& optimizer,
                 ParameterGroup group);
  /// Slices may share the memory of their row sums: diagnosed slices use it in turns, as many at a
  /// time as fit. `counted`: rows of the slice, from 0, that enter Update::sums.
  /// `unit`: unit of the parameter, for Update::number_of.
  void add(const OptimizerSlice& slice, LaneRange counted = {}, std::size_t unit = 0);

  /// Values that change from step to step.
  struct Update {
    std::int64_t step = 1;  ///< From 1.
    double lr = 0.0;
    double peak_lr = 0.0;
    const kernels::UpdateGuard* guard = nullptr;
    std::byte* scratch = nullptr;
    bool diagnosed = false;  ///< Make row sums.
    /// The number of a unit's update, from 1; 0: its slices stay as they are. None: `step`.
    std::function<std::int64_t(std::size_t unit)> number_of = {};
    /// When diagnosed, written on the stream: the sum of each over all counted rows. Meaningless
    /// if `guard->nonfinite` is set. nullptr: not requested.
    std::vector<ExactSum>* sums = nullptr;
    /// Buffer of all slices' row sums, from its beginning; nullptr: each slice has memory of its
    /// own that the host reads.
    const HostDeviceBuffer* row_sums = nullptr;
  };
  /// Enqueues an update of all slices. No-op if `guard->nonfinite` is set.
  void update(kernels::Stream& stream, const Update& update) const;
  [[nodiscard]] std::int64_t element_count() const;

 private:
  struct Entry {
    OptimizerSlice slice;
    LaneRange counted;
    std::size_t unit = 0;
  };
  /// The slices from `first` on, which goes past them, that one call updates: of one number and one
  /// rate, which `step` becomes.
  [[nodiscard]] std::vector<OptimizerSlice> next_slices(std::size_t& first, const Update& update,
                                                        OptimizerStep& step) const;
  /// Enqueues adding up the row sums of `slices`, those of the entries from `first` on.
  void add_up(kernels::Stream& stream, std::size_t first, std::span<const OptimizerSlice> slices,
              const Update& update) const;

  const kernels::KernelTable* kernels_;
  const Optimizer* optimizer_;
  bool decayed_;
  std::vector<Entry> entries_;
};

}  // namespace train::engine
