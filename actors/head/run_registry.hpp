#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "actors/head/conductor_actor.hpp"
#include "actors/head/index_actor.hpp"
#include "actors/head/report/observer_actor.hpp"
#include "actors/messages/connect_messages.hpp"
#include "actors/system/assembly.hpp"
#include "actors/system/handles.hpp"
#include "actors/system/streams.hpp"
#include "actors/train/boards/rank_board.hpp"
#include "run/program/run_program.hpp"
#include "run/report/run_report.hpp"

// Registry of a run's actors, which live in the launcher. An actor is a file that defines
// add_<name>() and an entry in run_registry.cpp. In the order of the entries it is spawned after
// the conductor and wired before it, receives the run's events if it calls listen(), is waited for
// at the end, and is stopped after the conductor and the ranks.
namespace train::actors {

class RunAssembly;

/// Spawns an actor of a run and adds it to the assembly. Does not block.
using AddToRun = void (*)(RunAssembly& run);

/// All registered actors, in order.
[[nodiscard]] std::span<const AddToRun> registered_run_actors();

/// Inputs for building the launcher's actors.
struct HeadParts {
  std::shared_ptr<run::RunReport> report;
  StreamKind report_stream = StreamKind::threads;
  std::shared_ptr<kernels::Stream> disk;  ///< Publishes and records checkpoints.
  run::IndexWork index;
  run::RunProgram::Options program = {};
  SaveDrain drain = {};
  std::shared_ptr<WaitTable> waits;  ///< The conductor's line; outlives the actors.
  Observing observing = {};          ///< Except the fields above.
  std::span<const AddToRun> actors = registered_run_actors();
};

/// Sends the run's ranks to an actor.
using WireToRanks = std::function<void(const std::vector<RankActor>& ranks)>;

/// Actors of a run while they are spawned.
class RunAssembly : public Assembly {
 public:
  RunAssembly(caf::actor_system& system, const HeadParts& parts, ConductorActor conductor)
      : Assembly(system), parts_(&parts), conductor_(std::move(conductor)) {}

  [[nodiscard]] const HeadParts& made_of() const { return *parts_; }
  [[nodiscard]] const ConductorActor& conductor() const { return conductor_; }

  /// Subscribes the actor to the events of the run that the conductor receives. If the actor ends,
  /// training continues, and the run ends with exit code 1 and its text. REQUIRES: it answers
  /// CloseReport, by ReportDrained under its own identity.
  void listen(std::string name, RunListener actor) {
    listeners_.push_back({std::move(name), std::move(actor)});
  }
  [[nodiscard]] const std::vector<NamedListener>& listeners() const { return listeners_; }

  /// Called when all ranks have joined, before the conductor begins.
  void when_connected(WireToRanks wire) { wiring_.push_back(std::move(wire)); }
  [[nodiscard]] const std::vector<WireToRanks>& wiring() const { return wiring_; }

 private:
  const HeadParts* parts_;
  ConductorActor conductor_;
  std::vector<NamedListener> listeners_;
  std::vector<WireToRanks> wiring_;
};

}  // namespace train::actors
