#pragma once

#include <caf/all.hpp>
#include <functional>
#include <memory>
#include <utility>

namespace train::sim {

/// One direction of the connection between the launcher and a rank, for one receiver: passes on
/// what it gets, in order. Ends as its receiver ends.
class ControlLink {
 public:
  /// Sees a message on its way; true: it goes no further.
  using Swallow = std::function<bool(const caf::message&)>;

  template <class Handle>
  ControlLink(caf::actor_system& system, const Handle& to, Swallow swallow = {})
      : cut_(std::make_shared<bool>(false)),
        actor_(system.spawn(behavior, caf::actor_cast<caf::actor>(to), cut_, std::move(swallow))) {}

  [[nodiscard]] const caf::actor& actor() const { return actor_; }
  template <class Handle>
  [[nodiscard]] Handle as() const {
    return caf::actor_cast<Handle>(actor_);
  }
  /// What comes from here on is lost.
  void cut() { *cut_ = true; }

 private:
  static caf::behavior behavior(caf::event_based_actor* self, const caf::actor& to,
                                const std::shared_ptr<bool>& cut, const Swallow& swallow) {
    self->monitor(to);
    self->set_down_handler([self](caf::down_msg& down) { self->quit(std::move(down.reason)); });
    self->set_default_handler(
        [to, cut, swallow](caf::scheduled_actor* link, caf::message_view& view) {
          caf::message message = view.move_content_to_message();
          if (!*cut && !(swallow && swallow(message))) {
            caf::actor_cast<caf::abstract_actor*>(to)->enqueue(nullptr, caf::make_message_id(),
                                                               std::move(message), link->context());
          }
          return caf::result<caf::message>(caf::delegated<caf::message>());
        });
    return {[](const ControlLink*) {}};
  }

  std::shared_ptr<bool> cut_;
  caf::actor actor_;
};

}  // namespace train::sim
