#include "actors/train/rank_registry.hpp"

#include <type_traits>

namespace train::actors {

std::remove_pointer_t<AddToRank> add_batch, add_evaluator, add_collective, add_buffers,
    add_snapshot, add_optimizers, add_layers;

namespace {

constexpr AddToRank kRankActors[] = {add_batch,    add_evaluator,  add_collective, add_buffers,
                                     add_snapshot, add_optimizers, add_layers};

}  // namespace

std::span<const AddToRank> registered_rank_actors() { return kRankActors; }

}  // namespace train::actors
