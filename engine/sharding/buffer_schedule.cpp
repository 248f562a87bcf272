#include "engine/sharding/buffer_schedule.hpp"

#include <algorithm>

#include "base/check.hpp"

namespace train::engine {
namespace {

std::vector<Visit> visits_of(const ShardPlan& plan, std::int64_t rounds, bool training) {
  std::vector<Visit> visits;
  for (std::int64_t round = 0; round < rounds; ++round) {
    for (std::size_t unit = 0; unit < plan.unit_count(); ++unit) {
      visits.push_back({round, false, unit});
    }
    for (std::size_t unit = plan.unit_count(); training && unit-- > 0;) {
      visits.push_back({round, true, unit});
    }
  }
  return visits;
}

/// Assigns each reservation one of `buffers`: one that was never used, else the free one whose
/// reservation ended first. REQUIRES: reservations in the order of their first visit.
void assign_buffers(std::vector<Reservation>& reservations, std::int64_t buffers) {
  std::vector<std::int32_t> latest(static_cast<std::size_t>(buffers), -1);
  const auto free_since = [&](std::int32_t reservation) {
    return reservation < 0 ? std::size_t{0}
                           : reservations[static_cast<std::size_t>(reservation)].last + 1;
  };
  for (std::size_t i = 0; i < reservations.size(); ++i) {
    const auto best =
        std::min_element(latest.begin(), latest.end(), [&](std::int32_t left, std::int32_t right) {
          return free_since(left) < free_since(right);
        });
    TRAIN_CHECK(best != latest.end() && free_since(*best) <= reservations[i].first,
                "reservation {} of {} finds none of {} buffers free", i, reservations.size(),
                buffers);
    reservations[i].buffer = static_cast<std::int32_t>(best - latest.begin());
    reservations[i].before = *best;
    *best = static_cast<std::int32_t>(i);
  }
}

/// Numbers reservations by their first visit and tells each visit its reservation.
void number_reservations(std::vector<Reservation>& reservations, const std::vector<Visit>& visits,
                         const ShardPlan& plan, std::vector<std::int32_t>& reservation_of) {
  std::sort(
      reservations.begin(), reservations.end(),
      [](const Reservation& left, const Reservation& right) { return left.first < right.first; });
  for (std::size_t i = 0; i < reservations.size(); ++i) {
    for (std::size_t visit = reservations[i].first; visit <= reservations[i].last; ++visit) {
      if (plan.group_of(visits[visit].unit) == reservations[i].group) {
        reservation_of[visit] = static_cast<std::int32_t>(i);
      }
    }
  }
}

/// The gathered groups in the order of their visits: one run per stretch of neighbouring visits.
std::vector<Reservation> gathered_runs(const ShardPlan& plan, const std::vector<Visit>& visits) {
  std::vector<Reservation> runs;
  for (std::size_t visit = 0; visit < visits.size(); ++visit) {
    const std::size_t group = plan.group_of(visits[visit].unit);
    const bool idle = visits[visit].backward && plan.below_trained(visits[visit].unit);
    if (plan.resident(group) || idle) {
      continue;
    }
    if (!runs.empty() && runs.back().group == group && runs.back().last + 1 == visit) {
      runs.back().last = visit;
      continue;
    }
    runs.push_back(
        {.group = group, .first = visit, .last = visit, .backward = visits[visit].backward});
  }
  return runs;
}

/// How many of a number of buffers are taken during each run, when each run is gathered anew: by
/// the run, and by those ahead that the prefetch may have started. Keeping a group's weights from
/// one of its runs to the next takes a buffer in between, where the prefetch does not need it for
/// that very group.
class BuffersTaken {
 public:
  BuffersTaken(const ShardPlan& plan, const std::vector<Reservation>& runs, std::int64_t buffers)
      : buffers_(buffers), taken_(runs.size(), 1) {
    for (std::size_t run = 0; run < runs.size(); ++run) {
      const auto& parallel = plan.parallel();
      const std::int64_t prefetch =
          runs[run].backward ? parallel.prefetch_backward : parallel.prefetch_forward;
      ahead_.push_back(static_cast<std::size_t>(
          std::clamp<std::int64_t>(prefetch, 0, std::min<std::int64_t>(buffers - 1, index(run)))));
      for (std::size_t i = run - ahead_[run]; i < run; ++i) {
        ++taken_[i];
      }
    }
  }

  /// Keeps what `from` gathered until `to`, the group's next run, if buffers suffice.
  [[nodiscard]] bool keep(std::size_t from, std::size_t to) {
    const std::size_t fetched = to - ahead_[to];  // from here on it has a buffer anyhow
    for (std::size_t i = from + 1; i < fetched; ++i) {
      if (taken_[i] >= buffers_) {
        return false;
      }
    }
    for (std::size_t i = from + 1; i < fetched; ++i) {
      ++taken_[i];
    }
    for (std::size_t i = fetched; i <= from; ++i) {
      --taken_[i];  // it would have been fetched a second time
    }
    return true;
  }

 private:
  static std::int64_t index(std::size_t run) { return static_cast<std::int64_t>(run); }

  std::int64_t buffers_;
  std::vector<std::int64_t> taken_;
  std::vector<std::size_t> ahead_;  // by run: how many runs earlier it may be fetched
};

/// By run: the group's run before, if its weights are kept until this one; else -1. Short times
/// first: they cost the least.
std::vector<std::int32_t> kept_runs(const ShardPlan& plan, const std::vector<Reservation>& runs) {
  struct Gap {
    std::size_t from, to;
  };
  std::vector<Gap> gaps;
  std::vector<std::int32_t> latest(plan.groups().size(), -1);
  for (std::size_t run = 0; run < runs.size(); ++run) {
    std::int32_t& before = latest[runs[run].group];
    if (before >= 0) {
      gaps.push_back({static_cast<std::size_t>(before), run});
    }
    before = static_cast<std::int32_t>(run);
  }
  std::stable_sort(gaps.begin(), gaps.end(), [](const Gap& left, const Gap& right) {
    return left.to - left.from < right.to - right.from;
  });
  std::vector<std::int32_t> kept(runs.size(), -1);
  BuffersTaken buffers(plan, runs, plan.gather_buffers());
  for (const Gap& gap : gaps) {
    if (plan.reshard_ranks() == 1 || buffers.keep(gap.from, gap.to)) {
      kept[gap.to] = static_cast<std::int32_t>(gap.from);
    }
  }
  return kept;
}

/// One reservation per run of a gathered group, or for several between which its weights are kept.
std::vector<Reservation> gather_reservations(const ShardPlan& plan,
                                             const std::vector<Visit>& visits) {
  const std::vector<Reservation> runs = gathered_runs(plan, visits);
  const std::vector<std::int32_t> kept = kept_runs(plan, runs);
  std::vector<Reservation> reservations;
  std::vector<std::size_t> reservation_of(runs.size());
  for (std::size_t run = 0; run < runs.size(); ++run) {
    if (kept[run] >= 0) {
      reservation_of[run] = reservation_of[static_cast<std::size_t>(kept[run])];
      reservations[reservation_of[run]].last = runs[run].last;
      continue;
    }
    reservation_of[run] = reservations.size();
    reservations.push_back(runs[run]);
  }
  return reservations;
}

/// reshard = N: the group's first reservation that begins and ends in a forward pass keeps rows;
/// reservations that begin and end in a backward pass are gathered from these rows, all others
/// from all ranks.
void set_smaller_groups(const ShardPlan& plan, const std::vector<Visit>& visits,
                        std::vector<Reservation>& reservations) {
  std::vector<std::int32_t> keeper(plan.groups().size(), -1);
  for (std::size_t i = 0; i < reservations.size(); ++i) {
    Reservation& reservation = reservations[i];
    const bool ends_backward = visits[reservation.last].backward;
    if (!plan.splits_kept_weights(reservation.group) || reservation.backward != ends_backward) {
      continue;
    }
    if (reservation.backward) {
      TRAIN_CHECK(keeper[reservation.group] >= 0, "group {} kept nothing", reservation.group);
      reservation.from_smaller_group = true;
      reservation.keeper = keeper[reservation.group];
    } else if (keeper[reservation.group] < 0) {
      reservation.keeps_rows = true;
      keeper[reservation.group] = static_cast<std::int32_t>(i);
    }
  }
}

std::vector<Reservation> gradient_reservations(const ShardPlan& plan,
                                               const std::vector<Visit>& visits) {
  std::vector<Reservation> reservations;
  std::vector<std::int32_t> latest(plan.groups().size(), -1);
  for (std::size_t visit = 0; visit < visits.size(); ++visit) {
    const std::size_t group = plan.group_of(visits[visit].unit);
    const bool writes =
        visits[visit].backward || plan.units()[visits[visit].unit].traits.gradient_in_forward;
    if (!writes || !plan.uses_shared_gradient(group)) {
      continue;
    }
    const std::int32_t reservation = latest[group];
    if (reservation >= 0 &&
        visits[reservations[static_cast<std::size_t>(reservation)].last].round ==
            visits[visit].round) {
      reservations[static_cast<std::size_t>(reservation)].last = visit;
      continue;
    }
    latest[group] = static_cast<std::int32_t>(reservations.size());
    reservations.push_back(
        {.group = group, .first = visit, .last = visit, .backward = visits[visit].backward});
  }
  return reservations;
}

}  // namespace

BufferSchedule::BufferSchedule(const ShardPlan& plan, const PassPlan& pass)
    : visits_(visits_of(plan, plan.lanes_of(pass).rounds(), pass.has_backward())),
      gather_of_(visits_.size(), -1),
      gradient_buffer_of_(visits_.size(), -1),
      units_(plan.unit_count()),
      backward_(pass.has_backward()) {
  gathers_ = gather_reservations(plan, visits_);
  number_reservations(gathers_, visits_, plan, gather_of_);
  if (backward_) {
    set_smaller_groups(plan, visits_, gathers_);
    gradient_buffers_ = gradient_reservations(plan, visits_);
    number_reservations(gradient_buffers_, visits_, plan, gradient_buffer_of_);
    assign_buffers(gradient_buffers_, gradient_buffer_count(plan));
  }
  assign_buffers(gathers_, plan.gather_buffers());
}

std::size_t BufferSchedule::visit(std::int64_t round, bool backward, std::size_t unit) const {
  TRAIN_CHECK(unit < units_ && (backward_ || !backward), "unit {} of {}", unit, units_);
  const std::size_t passes = backward_ ? 2 : 1;
  const std::size_t place = backward ? 2 * units_ - 1 - unit : unit;
  const std::size_t found = static_cast<std::size_t>(round) * passes * units_ + place;
  TRAIN_CHECK(found < visits_.size(), "round {}", round);
  return found;
}

std::int64_t gradient_buffer_count(const ShardPlan& plan) {
  // Every round is alike, and no gradient buffer outlasts its round.
  const std::vector<Visit> visits = visits_of(plan, 1, true);
  const std::vector<Reservation> reservations = gradient_reservations(plan, visits);
  std::int64_t most = 0;
  bool different = false;
  for (const Reservation& reservation : reservations) {
    std::int64_t open = 0;
    for (const Reservation& other : reservations) {
      open += other.first <= reservation.first && reservation.first <= other.last ? 1 : 0;
      different = different || other.group != reservation.group;
    }
    most = std::max(most, open);
  }
  // One more, so that a group's backward pass need not wait until the last one's sums are sent.
  return most + (different && plan.ranks() > 1 ? 1 : 0);
}

}  // namespace train::engine
