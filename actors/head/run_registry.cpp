#include "actors/head/run_registry.hpp"

#include <type_traits>

namespace train::actors {

std::remove_pointer_t<AddToRun> add_reporter, add_index, add_observer;

namespace {

constexpr AddToRun kRunActors[] = {add_reporter, add_index, add_observer};

}  // namespace

std::span<const AddToRun> registered_run_actors() { return kRunActors; }

}  // namespace train::actors
