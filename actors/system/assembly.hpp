#pragma once

#include <caf/actor.hpp>
#include <caf/actor_cast.hpp>
#include <caf/fwd.hpp>
#include <string>
#include <typeindex>
#include <typeinfo>
#include <unordered_map>
#include <utility>
#include <vector>

#include "actors/system/handles.hpp"
#include "base/check.hpp"

namespace train::actors {

/// Actors of a rank or of the launcher while they are spawned, found by handle type. The
/// registries' functions (rank_registry.hpp, run_registry.hpp) fill it.
class Assembly {
 public:
  explicit Assembly(caf::actor_system& system) : system_(&system) {}
  Assembly(const Assembly&) = delete;
  Assembly& operator=(const Assembly&) = delete;

  [[nodiscard]] caf::actor_system& system() const { return *system_; }

  /// Adds a spawned actor; returns it. `name`: its name in the text of a failure and in the
  /// watchdog's report.
  template <class Handle>
  Handle add(std::string name, const Handle& actor) {
    const auto plain = caf::actor_cast<caf::actor>(actor);
    parts_.emplace_back(std::move(name), plain);
    by_type_[std::type_index(typeid(Handle))].push_back(plain);
    return actor;
  }

  /// Actors added with this handle so far, in order.
  template <class Handle>
  [[nodiscard]] std::vector<Handle> all() const {
    std::vector<Handle> handles;
    if (const auto found = by_type_.find(std::type_index(typeid(Handle)));
        found != by_type_.end()) {
      for (const caf::actor& actor : found->second) {
        handles.push_back(caf::actor_cast<Handle>(actor));
      }
    }
    return handles;
  }

  /// Actor with this handle. REQUIRES: exactly one was added.
  template <class Handle>
  [[nodiscard]] Handle the() const {
    const std::vector<Handle> handles = all<Handle>();
    TRAIN_CHECK(handles.size() == 1, "{} actors understand what one is asked for", handles.size());
    return handles.front();
  }

  /// All actors in the order of adding, which is also the order of stopping.
  [[nodiscard]] const NamedActors& parts() const { return parts_; }

 private:
  caf::actor_system* system_;
  NamedActors parts_;
  std::unordered_map<std::type_index, std::vector<caf::actor>> by_type_;
};

}  // namespace train::actors
