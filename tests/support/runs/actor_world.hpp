#pragma once

#include <caf/all.hpp>
#include <caf/scheduler/test_coordinator.hpp>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.hpp"
#include "base/text/log.hpp"

namespace train::test {

/// Actor system on the framework's test scheduler: one thread, one message at a time, in an order
/// chosen by the test. The clock only moves when the test moves it.
class ActorWorld {
 public:
  /// Called for each message just before its receiver handles it.
  using Observer = std::function<void(std::string_view actor, const caf::type_erased_tuple&)>;

  ActorWorld() : config_(testing_policy()), system_(config_) {
    // Hides the info lines of thousands of runs; warnings still reach the terminal.
    log_from(LogLevel::warning);
    system_.await_actors_before_shutdown(false);  // A failed test must not hang.
  }
  ActorWorld(const ActorWorld&) = delete;
  ActorWorld& operator=(const ActorWorld&) = delete;
  ~ActorWorld() {
    for (const caf::actor& actor : kept_) {
      caf::anon_send_exit(actor, caf::exit_reason::kill);
    }
    kept_.clear();
    while (scheduler().try_run_once()) {
    }
  }

  [[nodiscard]] caf::actor_system& system() { return system_; }
  [[nodiscard]] caf::scheduler::test_coordinator& scheduler() {
    return dynamic_cast<caf::scheduler::test_coordinator&>(system_.scheduler());
  }
  /// Ends the actor with the world, even with cyclic references between actors.
  template <class Handle>
  Handle keep(Handle handle) {
    kept_.push_back(caf::actor_cast<caf::actor>(handle));
    return handle;
  }
  void observe(Observer observer) { observers_.push_back(std::move(observer)); }

  [[nodiscard]] std::size_t runnable() { return scheduler().jobs.size(); }
  /// Runs one message of the `index`-th runnable actor. REQUIRES: index < runnable().
  void run_one(std::size_t index = 0) {
    auto& jobs = scheduler().jobs;
    std::swap(jobs[index], jobs.front());
    if (auto* actor = dynamic_cast<caf::scheduled_actor*>(jobs.front())) {
      if (const auto* element = actor->mailbox().peek()) {
        for (const Observer& observer : observers_) {
          observer(actor->name(), element->content());
        }
      }
    }
    scheduler().try_run_once();
  }
  /// Runs until no actor has a message. Fails if that never happens (EX-3).
  void run_actors() {
    constexpr int kTooMany = 1'000'000;
    int messages = 0;
    while (runnable() > 0) {
      run_one();
      TRAIN_CHECK(++messages < kTooMany, "the actors never come to rest");
    }
  }
  void advance(std::chrono::nanoseconds time) { scheduler().advance_time(time); }

 private:
  struct Config : caf::actor_system_config {
    Config() {
      set("scheduler.policy", caf::atom("testing"));
      set("scheduler.max-threads", std::size_t{1});
    }
  };
  static Config testing_policy() { return {}; }

  Config config_;
  caf::actor_system system_;
  std::vector<Observer> observers_;
  std::vector<caf::actor> kept_;
};

/// Mock of any actor: stores its messages, answers none.
class Recorder {
 public:
  explicit Recorder(caf::actor_system& system)
      : log_(std::make_shared<std::vector<caf::message>>()),
        actor_(system.spawn([log = log_](caf::event_based_actor* self) -> caf::behavior {
          self->set_default_handler([log](caf::scheduled_actor*, caf::message_view& got) {
            log->push_back(got.move_content_to_message());
            return caf::result<caf::message>(caf::delegated<caf::message>());
          });
          return {[](const Recorder*) {}};
        })) {}
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;
  ~Recorder() { caf::anon_send_exit(actor_, caf::exit_reason::kill); }

  [[nodiscard]] const caf::actor& actor() const { return actor_; }
  template <class Handle>
  [[nodiscard]] Handle as() const {
    return caf::actor_cast<Handle>(actor_);
  }
  /// Messages of a type, in the order of arrival.
  template <class Message>
  [[nodiscard]] std::vector<Message> all() const {
    std::vector<Message> found;
    for (const caf::message& message : *log_) {
      if (message.match_elements<Message>()) {
        found.push_back(message.get_as<Message>(0));
      }
    }
    return found;
  }
  template <class Message>
  [[nodiscard]] std::size_t count() const {
    return all<Message>().size();
  }
  [[nodiscard]] std::size_t size() const { return log_->size(); }

 private:
  std::shared_ptr<std::vector<caf::message>> log_;
  caf::actor actor_;
};

/// Ends an actor like an exception with that text in one of its handlers.
template <class Handle>
void kill_actor(const Handle& actor, std::string text) {
  const auto victim = caf::actor_cast<caf::actor>(actor);
  caf::anon_send(victim, caf::exit_msg{victim.address(),
                                       caf::make_error(caf::sec::runtime_error, std::move(text))});
}

/// Stores the error that ended an actor.
class DownMonitor {
 public:
  template <class Handle>
  DownMonitor(caf::actor_system& system, const Handle& of)
      : reason_(std::make_shared<std::vector<caf::error>>()),
        actor_(system.spawn([reason = reason_, watched = caf::actor_cast<caf::actor>(of)](
                                caf::event_based_actor* self) -> caf::behavior {
          self->monitor(watched);
          self->set_down_handler(
              [reason](const caf::down_msg& down) { reason->push_back(down.reason); });
          return {[](const DownMonitor*) {}};
        })) {}
  DownMonitor(const DownMonitor&) = delete;
  DownMonitor& operator=(const DownMonitor&) = delete;
  ~DownMonitor() { caf::anon_send_exit(actor_, caf::exit_reason::kill); }

  [[nodiscard]] bool died() const { return !reason_->empty(); }
  /// REQUIRES: died().
  [[nodiscard]] const caf::error& reason() const { return reason_->front(); }

 private:
  std::shared_ptr<std::vector<caf::error>> reason_;
  caf::actor actor_;
};

}  // namespace train::test
