#include "engine/sharding/buffer_schedule.hpp"

#include <algorithm>

#include "engine/base/check.hpp"

namespace train::engine {
namespace {

bool has_backward(CommandKind kind) {
  return kind == CommandKind::train_step || kind == CommandKind::diagnose;
}

std::int64_t rounds_of(const ShardPlan& plan, CommandKind kind) {
  if (has_backward(kind)) {
    return plan.train_lanes().rounds();
  }
  return kind == CommandKind::evaluate ? plan.eval_lanes().rounds() : 0;
}

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

/// Lends each lease one of `buffers`: one that was never lent, else the free one whose lease ended
/// first. REQUIRES: leases in the order of their first visit.
void assign_buffers(std::vector<Lease>& leases, std::int64_t buffers) {
  std::vector<std::int32_t> latest(static_cast<std::size_t>(buffers), -1);
  const auto free_since = [&](std::int32_t lease) {
    return lease < 0 ? std::size_t{0} : leases[static_cast<std::size_t>(lease)].last + 1;
  };
  for (std::size_t i = 0; i < leases.size(); ++i) {
    const auto best =
        std::min_element(latest.begin(), latest.end(), [&](std::int32_t left, std::int32_t right) {
          return free_since(left) < free_since(right);
        });
    TRAIN_CHECK(best != latest.end() && free_since(*best) <= leases[i].first,
                "lease {} of {} finds none of {} buffers free", i, leases.size(), buffers);
    leases[i].buffer = static_cast<std::int32_t>(best - latest.begin());
    leases[i].before = *best;
    *best = static_cast<std::int32_t>(i);
  }
}

/// Numbers leases by their first visit and tells each visit its lease.
void number_leases(std::vector<Lease>& leases, const std::vector<Visit>& visits,
                   const ShardPlan& plan, std::vector<std::int32_t>& lease_of) {
  std::sort(leases.begin(), leases.end(),
            [](const Lease& left, const Lease& right) { return left.first < right.first; });
  for (std::size_t i = 0; i < leases.size(); ++i) {
    for (std::size_t visit = leases[i].first; visit <= leases[i].last; ++visit) {
      if (plan.group_of(visits[visit].unit) == leases[i].group) {
        lease_of[visit] = static_cast<std::int32_t>(i);
      }
    }
  }
}

/// One lease per run of neighbouring visits of a gathered group; reshard = "never": one per group.
std::vector<Lease> gather_leases(const ShardPlan& plan, const std::vector<Visit>& visits) {
  const bool keeps = plan.reshard_ranks() == 1;
  std::vector<std::int32_t> latest(plan.groups().size(), -1);
  std::vector<Lease> leases;
  for (std::size_t visit = 0; visit < visits.size(); ++visit) {
    const std::size_t group = plan.group_of(visits[visit].unit);
    if (plan.resident(group)) {
      continue;
    }
    if (const std::int32_t lease = latest[group]; lease >= 0) {
      Lease& open = leases[static_cast<std::size_t>(lease)];
      if (keeps || open.last + 1 == visit) {
        open.last = visit;
        continue;
      }
    }
    latest[group] = static_cast<std::int32_t>(leases.size());
    leases.push_back(
        {.group = group, .first = visit, .last = visit, .backward = visits[visit].backward});
  }
  return leases;
}

/// reshard = N: the group's first lease that is all forward keeps rows, those that are all backward
/// come from them; what merges both passes is gathered from everybody.
void set_smaller_groups(const ShardPlan& plan, const std::vector<Visit>& visits,
                        std::vector<Lease>& leases) {
  std::vector<bool> kept(plan.groups().size(), false);
  for (Lease& lease : leases) {
    const bool ends_backward = visits[lease.last].backward;
    if (!plan.splits_kept_weights(lease.group) || lease.backward != ends_backward) {
      continue;
    }
    if (lease.backward) {
      TRAIN_CHECK(kept[lease.group], "group {} kept nothing", lease.group);
      lease.from_smaller_group = true;
    } else if (!kept[lease.group]) {
      kept[lease.group] = lease.keeps_rows = true;
    }
  }
}

std::vector<Lease> leaf_leases(const ShardPlan& plan, const std::vector<Visit>& visits) {
  std::vector<Lease> leases;
  std::vector<std::int32_t> latest(plan.groups().size(), -1);
  for (std::size_t visit = 0; visit < visits.size(); ++visit) {
    const std::size_t group = plan.group_of(visits[visit].unit);
    // The last unit writes a gradient already at the end of the forward pass.
    const bool writes = visits[visit].backward || visits[visit].unit + 1 == plan.unit_count();
    if (!writes || !plan.uses_leaf(group)) {
      continue;
    }
    const std::int32_t lease = latest[group];
    if (lease >= 0 &&
        visits[leases[static_cast<std::size_t>(lease)].last].round == visits[visit].round) {
      leases[static_cast<std::size_t>(lease)].last = visit;
      continue;
    }
    latest[group] = static_cast<std::int32_t>(leases.size());
    leases.push_back(
        {.group = group, .first = visit, .last = visit, .backward = visits[visit].backward});
  }
  return leases;
}

std::int64_t gathered_groups(const ShardPlan& plan) {
  std::int64_t count = 0;
  for (std::size_t group = 0; group < plan.groups().size(); ++group) {
    count += plan.resident(group) ? 0 : 1;
  }
  return count;
}

}  // namespace

BufferSchedule::BufferSchedule(const ShardPlan& plan, CommandKind kind)
    : visits_(visits_of(plan, rounds_of(plan, kind), has_backward(kind))),
      gather_of_(visits_.size(), -1),
      leaf_of_(visits_.size(), -1),
      units_(plan.unit_count()),
      backward_(has_backward(kind)) {
  gathers_ = gather_leases(plan, visits_);
  number_leases(gathers_, visits_, plan, gather_of_);
  if (has_backward(kind)) {
    set_smaller_groups(plan, visits_, gathers_);
    leaves_ = leaf_leases(plan, visits_);
    number_leases(leaves_, visits_, plan, leaf_of_);
    assign_buffers(leaves_, leaf_buffers(plan));
  }
  assign_buffers(gathers_, gather_buffers(plan));
}

std::size_t BufferSchedule::visit(std::int64_t round, bool backward, std::size_t unit) const {
  TRAIN_CHECK(unit < units_ && (backward_ || !backward), "unit {} of {}", unit, units_);
  const std::size_t passes = backward_ ? 2 : 1;
  const std::size_t place = backward ? 2 * units_ - 1 - unit : unit;
  const std::size_t found = static_cast<std::size_t>(round) * passes * units_ + place;
  TRAIN_CHECK(found < visits_.size(), "round {}", round);
  return found;
}

std::int64_t gather_buffers(const ShardPlan& plan) {
  const std::int64_t groups = gathered_groups(plan);
  return plan.reshard_ranks() == 1
             ? groups
             : std::clamp<std::int64_t>(plan.parallel().gather_credits, 0, groups);
}

std::int64_t gather_buffers_needed(const ShardPlan& plan) {
  const std::int64_t groups = gathered_groups(plan);
  // Two leases never cover the same visit, unless they last to the end of the command.
  return plan.reshard_ranks() == 1 ? groups : std::min<std::int64_t>(groups, 1);
}

std::int64_t leaf_buffers(const ShardPlan& plan) {
  // Every round is alike, and no leaf outlasts its round.
  const std::vector<Visit> visits = visits_of(plan, 1, true);
  const std::vector<Lease> leases = leaf_leases(plan, visits);
  std::int64_t most = 0;
  bool different = false;
  for (const Lease& lease : leases) {
    std::int64_t open = 0;
    for (const Lease& other : leases) {
      open += other.first <= lease.first && lease.first <= other.last ? 1 : 0;
      different = different || other.group != lease.group;
    }
    most = std::max(most, open);
  }
  // One more, so that a group's backward pass need not wait until the last one's sums are sent.
  return most + (different && plan.ranks() > 1 ? 1 : 0);
}

}  // namespace train::engine
