#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <set>
#include <utility>
#include <vector>

namespace train::test {

/// Words shared by players, and the past of each player: the complete state of a play.
struct Scene {
  struct Past {
    std::vector<std::uint32_t> results;  ///< Results of its accesses.
    bool asleep = false;
    bool ended = false;
    auto operator<=>(const Past&) const = default;
  };
  std::array<std::uint32_t, 4> words{};
  std::vector<Past> players;
  auto operator<=>(const Scene&) const = default;
};

/// Interface for a player's visible operations, one access per turn. Each turn runs the player from
/// its beginning with the results of earlier turns, so the player may depend on nothing else.
class Player {
 public:
  Player(Scene& scene, std::size_t index) : scene_(&scene), past_(&scene.players[index]) {}

  std::uint32_t load(std::size_t word) {
    return access([&] { return at(word); });
  }
  void store(std::size_t word, std::uint32_t value) {
    access([&] { return at(word) = value; });
  }
  std::uint32_t exchange(std::size_t word, std::uint32_t value) {
    return access([&] { return std::exchange(at(word), value); });
  }
  std::uint32_t fetch_add(std::size_t word, std::uint32_t n) {
    return access([&] { return std::exchange(at(word), at(word) + n); });
  }
  bool compare_exchange(std::size_t word, std::uint32_t expected, std::uint32_t desired) {
    return access([&] {
             const bool same = at(word) == expected;
             at(word) = same ? desired : at(word);
             return same ? 1U : 0U;
           }) == 1;
  }
  /// Waits on a futex: sleeps until a wake-up if the word is `value`.
  void wait(std::size_t word, std::uint32_t value) {
    access([&] {
      past_->asleep = at(word) == value;
      return 0U;
    });
  }
  void wake() {
    access([&] {
      for (Scene::Past& player : scene_->players) {
        player.asleep = false;
      }
      return 0U;
    });
  }

  /// Plays one turn of `body`.
  void play(const std::function<void(Player&)>& body) {
    try {
      body(*this);
      past_->ended = true;
    } catch (const TurnIsOver&) {
    }
  }

 private:
  struct TurnIsOver {};

  template <class Access>
  std::uint32_t access(const Access& access) {
    if (next_ == past_->results.size()) {
      if (done_) {
        throw TurnIsOver();
      }
      done_ = true;
      past_->results.push_back(access());
    }
    return past_->results[next_++];
  }
  std::uint32_t& at(std::size_t word) { return scene_->words.at(word); }

  Scene* scene_;
  Scene::Past* past_;
  std::size_t next_ = 0;
  bool done_ = false;
};

struct Role {
  std::function<void(Player&)> body;
  bool mortal = false;  ///< May be killed before any of its turns.
};

/// Explores every order of the turns of some players; each access is sequentially consistent.
class EveryOrder {
 public:
  explicit EveryOrder(std::vector<Role> roles) : roles_(std::move(roles)) {
    Scene scene;
    scene.players.resize(roles_.size());
    go_on(scene);
  }

  [[nodiscard]] std::size_t scenes() const { return seen_.size(); }
  /// Number of ends in which a player sleeps for ever.
  [[nodiscard]] std::size_t sleepers() const { return sleepers_; }

 private:
  void go_on(const Scene& scene) {
    if (!seen_.insert(scene).second) {
      return;
    }
    bool anybody_acts = false;
    bool anybody_sleeps = false;
    for (std::size_t index = 0; index < roles_.size(); ++index) {
      const Scene::Past& player = scene.players[index];
      anybody_sleeps = anybody_sleeps || player.asleep;
      if (player.ended || player.asleep) {
        continue;
      }
      anybody_acts = true;
      Scene next = scene;
      Player(next, index).play(roles_[index].body);
      go_on(next);
      if (roles_[index].mortal) {
        Scene killed = scene;
        killed.players[index].ended = true;
        go_on(killed);
      }
    }
    sleepers_ += !anybody_acts && anybody_sleeps ? 1 : 0;
  }

  std::vector<Role> roles_;
  std::set<Scene> seen_;
  std::size_t sleepers_ = 0;
};

}  // namespace train::test
