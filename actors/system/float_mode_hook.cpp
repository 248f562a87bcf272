#include "actors/system/float_mode_hook.hpp"

#include <caf/actor_system_config.hpp>
#include <caf/thread_hook.hpp>

#include "base/math/float_mode.hpp"

namespace train::actors {
namespace {

class FloatModeHook : public caf::thread_hook {
 public:
  void init(caf::actor_system& /*system*/) override {}
  void thread_started() override { set_float_mode(); }
  void thread_terminates() override {}
};

}  // namespace

void keep_float_mode(caf::actor_system_config& config) { config.add_thread_hook<FloatModeHook>(); }

}  // namespace train::actors
