#include "actors/cluster/network/node_position.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <optional>

#include "storage/files/untrusted_text.hpp"

namespace train::actors {
namespace {

constexpr std::uint64_t kMostHosts = 65536;
constexpr std::size_t kMostDigits = 20;
constexpr const char* kGeneration = ".generation-";

std::optional<std::uint64_t> number_of(std::string_view text) {
  std::uint64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && stop == end && !text.empty() ? std::optional(value) : std::nullopt;
}

/// A variable that has to be there and be a number.
Result<std::int64_t> number(const Environment& environment, const std::string& name) {
  const auto entry = environment.find(name);
  if (entry == environment.end()) {
    return user_error(fmt::format(
        "parallel.nodes is more than 1, but {} is not set; start with: srun --ntasks-per-node=1",
        name));
  }
  const auto value = number_of(entry->second);
  if (!value || *value > kMostHosts) {
    return user_error(fmt::format("{} = '{}' is no number of nodes", name, entry->second));
  }
  return static_cast<std::int64_t>(*value);
}

std::string text(const Environment& environment, const std::string& name) {
  const auto entry = environment.find(name);
  return entry == environment.end() ? std::string() : entry->second;
}

/// A batch script is a task too, but one that no step started: only a step has its own node list.
bool in_step(const Environment& environment) { return environment.contains("SLURM_STEP_NODELIST"); }

/// One range of "n[1-3,07]": appends prefix + number, with the zeros it is written with.
bool append_range(const std::string& prefix, std::string_view range,
                  std::vector<std::string>& names) {
  const std::size_t dash = range.find('-');
  const std::string_view low = range.substr(0, dash);
  const std::string_view high = dash == std::string_view::npos ? low : range.substr(dash + 1);
  const auto first = number_of(low);
  const auto last = number_of(high);
  if (!first || !last || *last < *first || *last - *first >= kMostHosts - names.size() ||
      low.size() > kMostDigits) {
    return false;
  }
  for (std::uint64_t i = *first; i <= *last; ++i) {
    names.push_back(fmt::format("{}{:0{}}", prefix, i, low.size()));
  }
  return true;
}

/// One entry of a list: "login" or "n[1-3,07]" or "r1[1-2]-ib".
bool append_entry(std::string_view entry, std::vector<std::string>& names) {
  const std::size_t open = entry.find('[');
  if (open == std::string_view::npos) {
    names.emplace_back(entry);
    return !entry.empty() && entry.find(']') == std::string_view::npos;
  }
  const std::size_t close = entry.find(']', open);
  if (close == std::string_view::npos || entry.find(']') < open ||
      entry.find_first_of("[]", close + 1) != std::string_view::npos) {
    return false;
  }
  const std::size_t before = names.size();
  std::string_view ranges = entry.substr(open + 1, close - open - 1);
  for (;;) {
    const std::size_t comma = ranges.find(',');
    if (!append_range(std::string(entry.substr(0, open)), ranges.substr(0, comma), names)) {
      return false;
    }
    if (comma == std::string_view::npos) {
      break;
    }
    ranges.remove_prefix(comma + 1);
  }
  for (std::size_t i = before; i < names.size(); ++i) {
    names[i] += entry.substr(close + 1);
  }
  return true;
}

Result<NodePosition> place_in_step(std::int64_t nodes, const Environment& environment) {
  const auto node = number(environment, "SLURM_NODEID");
  if (!node) {
    return node.error();
  }
  const auto tasks = number(environment, "SLURM_STEP_NUM_TASKS");
  if (!tasks) {
    return tasks.error();
  }
  const std::string list = text(environment, "SLURM_STEP_NODELIST");
  auto hosts = expand_hosts(list);
  if (!hosts) {
    return user_error(fmt::format("SLURM_STEP_NODELIST: {}", hosts.error().message));
  }
  const auto count = static_cast<std::int64_t>(hosts->size());
  if (count != nodes) {
    return user_error(
        fmt::format("parallel.nodes = {}, but SLURM_STEP_NODELIST = {} names {}; make them equal",
                    nodes, list, count));
  }
  if (*tasks != nodes) {
    return user_error(
        fmt::format("SLURM_STEP_NUM_TASKS = {} on {} nodes: the launcher runs once per node and "
                    "starts the ranks itself; use srun --ntasks-per-node=1",
                    *tasks, nodes));
  }
  if (*node >= nodes) {
    return user_error(fmt::format("SLURM_NODEID = {}, but SLURM_STEP_NODELIST = {} names only {}",
                                  *node, list, count));
  }
  return NodePosition{
      .node = *node, .nodes = nodes, .hosts = std::move(hosts).value(), .start = {}};
}

}  // namespace

Environment process_environment() {
  Environment environment;
  for (char** entry = ::environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view line(*entry);
    if (const std::size_t equals = line.find('='); equals != std::string_view::npos) {
      environment.emplace(line.substr(0, equals), line.substr(equals + 1));
    }
  }
  return environment;
}

std::int64_t local_rank(std::int64_t rank, std::int64_t ranks, std::int64_t nodes) {
  NodePosition place{.nodes = nodes};
  while (place.ranks(ranks).second <= rank) {
    ++place.node;
  }
  return rank - place.ranks(ranks).first;
}

bool lowest_of_node(std::int64_t rank, std::int64_t ranks, std::int64_t nodes) {
  return local_rank(rank, ranks, nodes) == 0;
}

Result<NodePosition> find_place(std::int64_t nodes, const Environment& environment) {
  NodePosition place;
  if (nodes > 1 || in_step(environment)) {
    if (!in_step(environment)) {
      return user_error(
          fmt::format("parallel.nodes = {}, but SLURM_STEP_NUM_TASKS is not set: no Slurm step "
                      "started this; use srun --ntasks-per-node=1, or parallel.nodes = 1",
                      nodes));
    }
    auto found = place_in_step(nodes, environment);
    if (!found) {
      return found.error();
    }
    place = std::move(found).value();
  }
  // A requeued job keeps its number; a batch script may start several steps.
  place.start =
      fmt::format("{}.{}.{}", text(environment, "SLURM_JOB_ID"), text(environment, "SLURM_STEP_ID"),
                  text(environment, "SLURM_RESTART_COUNT"));
  return place;
}

Result<std::vector<std::string>> expand_hosts(std::string_view list) {
  std::vector<std::string> names;
  std::size_t begin = 0;
  bool good = !list.empty();
  int depth = 0;
  for (std::size_t i = 0; good && i <= list.size(); ++i) {
    if (i == list.size() || (list[i] == ',' && depth == 0)) {
      good = append_entry(list.substr(begin, i - begin), names) && names.size() <= kMostHosts;
      begin = i + 1;
    } else {
      depth += list[i] == '[' ? 1 : list[i] == ']' ? -1 : 0;
    }
  }
  if (!good) {
    return user_error(fmt::format("{} is no list of host names", storage::shown(list)));
  }
  return names;
}

std::string NodePosition::start_of(std::uint32_t generation) const {
  return generation == 0 ? start : fmt::format("{}{}{}", start, kGeneration, generation);
}

std::optional<std::uint32_t> NodePosition::generation_of(std::string_view name) const {
  if (name == start) {
    return 0;
  }
  const std::string before = start + kGeneration;
  if (!name.starts_with(before)) {
    return std::nullopt;
  }
  const auto value = number_of(name.substr(before.size()));
  return value && *value <= std::numeric_limits<std::uint32_t>::max()
             ? std::optional(static_cast<std::uint32_t>(*value))
             : std::nullopt;
}

Result<Endpoint> find_head(const NodePosition& place, std::uint32_t from,
                           const std::filesystem::path& endpoint_file,
                           std::chrono::milliseconds timeout,
                           const std::function<bool()>& give_up) {
  const auto ours = [&place, from](const std::string& start) {
    const auto generation = place.generation_of(start);
    return generation && *generation >= from;
  };
  return wait_for_endpoint(endpoint_file, ours, timeout, give_up);
}

}  // namespace train::actors
