#include "run/report/stall_chain.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>

namespace train::run {
namespace {

constexpr auto kUnasked = static_cast<std::int32_t>(ChannelPhase::unasked);
constexpr auto kMoving = static_cast<std::int32_t>(ChannelPhase::moving);
constexpr std::int32_t kNothing = -1;
// A rank without reports for this long is silent. Ranks report once a second.
constexpr std::int64_t kSilent_ns = 2'500'000'000;

std::string for_seconds(std::int64_t age_ns) {
  return fmt::format("for {:.1f} s", static_cast<double>(age_ns) * 1e-9);
}

std::pair<std::uint64_t, std::uint32_t> position(const ObservedChannel& at) {
  return {at.command, at.index};
}

/// True if the rank at `here` has not yet done its part in `target`.
bool keeps_waiting(const ObservedChannel& here, const ObservedChannel& target) {
  return position(here) < position(target) ||
         (position(here) == position(target) && here.phase != kMoving);
}

/// Finds the cause of a stall from the last reports of all ranks. Follows every collective that a
/// rank waits in to the rank that has not reached it, then that rank's own work or wait, and so on.
/// Each (rank, collective) is visited once, so the search ends; a chain that returns to a visited
/// one is reported as a circle.
class StallChain {
 public:
  /// `now_ns`: the head's clock. Borrows `ranks`.
  StallChain(const std::vector<HeardRank>& ranks, std::int64_t now_ns)
      : ranks_(ranks), now_ns_(now_ns) {}

  [[nodiscard]] std::optional<Stall> find(std::int64_t stall_ns, bool commands_wait) const {
    std::optional<Stall> found;
    std::int64_t waited_ns = -1;  // Wait of the chain's first rank.
    const auto offer = [&](Stall stall, std::int64_t age_ns) {
      if (stall.age_ns >= stall_ns && age_ns > waited_ns) {
        waited_ns = age_ns;
        found = std::move(stall);
      }
    };
    for (std::size_t index = 0; index < ranks_.size(); ++index) {
      const auto rank = static_cast<std::int32_t>(index);
      if (silent(rank) || !heard(rank).last) {
        continue;
      }
      for (const ObservedChannel& at : heard(rank).last->channels) {
        if (at.phase == kMoving) {
          Visited visited;
          offer(wait_in(rank, at, visited), age(rank, at.age_ns));
        }
      }
    }
    if (found || !commands_wait) {
      return found;
    }
    for (std::size_t index = 0; index < ranks_.size(); ++index) {
      const auto rank = static_cast<std::int32_t>(index);
      Visited visited;
      Stall stall =
          silent(rank) ? is_silent(rank)
          : heard(rank).last
              ? doing(rank, fmt::format("the conductor waits for rank {}", rank), -1, visited)
              : Stall{};
      const std::int64_t age_ns = stall.age_ns;
      offer(std::move(stall), age_ns);
    }
    return found;
  }

 private:
  using Visited = std::set<std::tuple<std::int32_t, std::int32_t, std::uint64_t, std::uint32_t>>;

  [[nodiscard]] const HeardRank& heard(std::int32_t rank) const {
    return ranks_.at(static_cast<std::size_t>(rank));
  }

  [[nodiscard]] std::int64_t silence_ns(std::int32_t rank) const {
    return now_ns_ - heard(rank).heard_ns;
  }

  [[nodiscard]] bool silent(std::int32_t rank) const { return silence_ns(rank) > kSilent_ns; }

  /// Age of a moment on the rank's clock, as of now.
  [[nodiscard]] std::int64_t age(std::int32_t rank, std::int64_t then_ns) const {
    return then_ns + silence_ns(rank);
  }

  [[nodiscard]] const ObservedChannel* channel(std::int32_t rank, std::int32_t which) const {
    const auto& last = heard(rank).last;
    if (!last) {
      return nullptr;
    }
    const auto found =
        std::find_if(last->channels.begin(), last->channels.end(),
                     [which](const ObservedChannel& one) { return one.channel == which; });
    return found == last->channels.end() ? nullptr : &*found;
  }

  /// Chain of `rank` waiting for the bytes of `at`.
  [[nodiscard]] Stall wait_in(std::int32_t rank, const ObservedChannel& at,
                              Visited& visited) const {
    const std::int64_t age_ns = age(rank, at.age_ns);
    const std::string waits =
        fmt::format("rank {} waits for {} {}", rank, at.what, for_seconds(age_ns));
    if (!visited.insert({rank, at.channel, at.command, at.index}).second) {
      return {
          .text = fmt::format("rank {} waits for {}: a circle, which is a defect of this program",
                              rank, at.what),
          .age_ns = age_ns,
          .rank = -1,
          .work = {},
          .circle = true};
    }
    const std::optional<std::int32_t> awaited = awaited_in(at);
    if (!awaited) {
      return {.text = fmt::format("{}, and all have asked for it: its bytes have not come", waits),
              .age_ns = age_ns,
              .rank = -1,
              .work = {}};
    }
    Stall stall = silent(*awaited) ? is_silent(*awaited) : held_before(*awaited, at, visited);
    stall.text = fmt::format("{}, {}", waits, stall.text);
    if (stall.circle) {
      stall.age_ns = std::min(stall.age_ns, age_ns);
    }
    return stall;
  }

  /// Rank that has not done its part in `at`: a silent one first, then the one furthest behind.
  [[nodiscard]] std::optional<std::int32_t> awaited_in(const ObservedChannel& at) const {
    std::optional<std::int32_t> found;
    for (const std::int32_t peer : at.from) {
      if (peer < 0 || static_cast<std::size_t>(peer) >= ranks_.size()) {
        continue;
      }
      if (silent(peer)) {
        return peer;
      }
      const ObservedChannel* here = channel(peer, at.channel);
      if (here == nullptr || !keeps_waiting(*here, at)) {
        continue;
      }
      if (!found || position(*here) < position(*channel(*found, at.channel))) {
        found = peer;
      }
    }
    return found;
  }

  /// Chain of `rank`, which has not done its part in `target`.
  [[nodiscard]] Stall held_before(std::int32_t rank, const ObservedChannel& target,
                                  Visited& visited) const {
    const ObservedChannel& here = *channel(rank, target.channel);
    const bool there = position(here) == position(target);
    if (here.phase == kMoving) {
      return wait_in(rank, here, visited);
    }
    if (here.phase == kUnasked || here.phase == kNothing) {
      const std::string prefix =
          there || here.phase == kNothing
              ? fmt::format("rank {} has not asked for it", rank)
              : fmt::format("rank {} has not even asked for {}", rank, here.what);
      return doing(rank, prefix, here.channel, visited);
    }
    // The rank was asked, but its stream has not reached the work.
    const std::string prefix = there ? fmt::format("rank {} prepares it", rank)
                                     : fmt::format("rank {} prepares {}", rank, here.what);
    return doing(rank, prefix, here.channel, visited);
  }

  /// Chain of a rank that works, or waits in another channel than `beside`, instead of doing its
  /// part. `prefix`: the words before, without a colon.
  [[nodiscard]] Stall doing(std::int32_t rank, const std::string& prefix, std::int32_t beside,
                            Visited& visited) const {
    if (auto busy = on_stream(rank, prefix)) {
      return *busy;
    }
    const RankObserved& last = *heard(rank).last;
    const ObservedChannel* oldest = nullptr;
    for (const ObservedChannel& one : last.channels) {
      if (one.channel != beside && one.phase == kMoving &&
          (oldest == nullptr || one.age_ns > oldest->age_ns)) {
        oldest = &one;
      }
    }
    if (oldest != nullptr) {
      Stall stall = wait_in(rank, *oldest, visited);
      stall.text = fmt::format("{}: {}", prefix, stall.text);
      return stall;
    }
    for (const ObservedStream& stream : last.streams) {
      if (stream.name == "input") {
        const std::int64_t age_ns = age(rank, stream.age_ns);
        return {.text = fmt::format("{}: in {} {}", prefix, stream.doing, for_seconds(age_ns)),
                .age_ns = age_ns,
                .rank = rank,
                .work = fmt::format("rank {} {}", rank, stream.kind)};
      }
    }
    // An actor may renew its wait repeatedly: only a lack of progress counts.
    Stall stall{.text = prefix, .age_ns = age(rank, last.unchanged_ns), .rank = rank, .work = {}};
    const char* between = ": ";
    for (const ObservedWait& wait : last.waits) {
      stall.text += fmt::format("{}its {} waits for {} {}", between, wait.who, wait.what,
                                for_seconds(age(rank, wait.age_ns)));
      between = ", ";
    }
    if (last.waits.empty()) {
      stall.text += fmt::format(": nothing is under way on it {}", for_seconds(stall.age_ns));
    }
    return stall;
  }

  /// Stream that keeps the rank busy: the compute stream, or the one that it waits for.
  [[nodiscard]] std::optional<Stall> on_stream(std::int32_t rank, const std::string& prefix) const {
    const ObservedStream* busy = nullptr;
    for (const ObservedStream& stream : heard(rank).last->streams) {
      const bool computes = stream.name == "compute" || stream.name == "reduce";
      const bool behind = busy != nullptr && busy->waits && !stream.waits;
      if ((busy == nullptr && computes) || (behind && (computes || stream.name == "copy"))) {
        busy = &stream;
      }
    }
    if (busy == nullptr || busy->waits) {
      return std::nullopt;  // All ranks wait for one another: the channels show the cause.
    }
    const std::int64_t age_ns = age(rank, busy->age_ns);
    return Stall{.text = fmt::format("{}: in {} {}", prefix, busy->doing, for_seconds(age_ns)),
                 .age_ns = age_ns,
                 .rank = rank,
                 .work = fmt::format("rank {} {}", rank, busy->kind)};
  }

  [[nodiscard]] Stall is_silent(std::int32_t rank) const {
    return {.text = fmt::format("rank {} has not been heard of {}", rank,
                                for_seconds(silence_ns(rank))),
            .age_ns = silence_ns(rank),
            .rank = rank,
            .work = {}};
  }

  const std::vector<HeardRank>& ranks_;
  std::int64_t now_ns_;
};

}  // namespace

std::optional<Stall> find_stall(const std::vector<HeardRank>& ranks, std::int64_t now_ns,
                                std::int64_t stall_ns, bool commands_wait) {
  return StallChain(ranks, now_ns).find(stall_ns, commands_wait);
}

}  // namespace train::run
