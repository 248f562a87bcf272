#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "base/process/joined_thread.hpp"
#include "engine/collective/collective.hpp"

namespace train::engine {

/// The way of one rank to all others on one channel, on which a LinkChannel runs its exchanges.
///
/// Threading: one owner; abort() is safe from any thread.
class ChannelLink {
 public:
  virtual ~ChannelLink() = default;
  ChannelLink(const ChannelLink&) = delete;
  ChannelLink& operator=(const ChannelLink&) = delete;

  /// Runs one exchange to its end; blocks. After a failure the memory of the transfer is not
  /// touched any more, and nothing but disconnect() may be called. Errors: failure naming the rank
  /// that differs, that closed the connection or was waited for.
  [[nodiscard]] virtual Status run(const CollectiveIdentity& identity,
                                   const Transfer& transfer) = 0;
  /// Ends a run() under way, and later ones, with `reason`.
  virtual void abort(const std::string& reason) = 0;
  /// Closes the connections; may take a few milliseconds per rank. Peers that wait for this rank
  /// fail; without a farewell all do that wait for anybody.
  virtual void disconnect(bool farewell) = 0;

  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int world_size() const = 0;

 protected:
  ChannelLink() = default;
};

/// A channel of a world of processes: a thread that runs one exchange after the other on a link.
/// See Collectives for the contract.
class LinkChannel final : public Collectives {
 public:
  /// Takes over an open link and starts the thread.
  explicit LinkChannel(std::unique_ptr<ChannelLink> link);
  ~LinkChannel() override;

  [[nodiscard]] int rank() const override { return link_->rank(); }
  [[nodiscard]] int world_size() const override { return link_->world_size(); }

  void exchange(const CollectiveIdentity& identity, Transfer transfer, Done done) override;
  void cancel(const std::string& reason) override;

 private:
  struct Request {
    CollectiveIdentity identity;
    Transfer transfer;
    Done done;
  };

  /// Waits for something to do. False: nothing, and nothing will come.
  [[nodiscard]] bool next(std::optional<Request>& request);
  [[nodiscard]] Status serve(const Request& request);
  void loop();
  void end(const std::string& reason, bool closing);

  std::unique_ptr<ChannelLink> link_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Request> queue_;
  std::optional<std::string> cancelled_;
  bool closing_ = false;
  bool in_order_ = false;  ///< Ended by the destructor alone, not by cancel().

  std::optional<std::string> failed_;  ///< Used by the thread alone: why the link has failed.
  JoinedThread thread_;                ///< Last member: starts when all others exist.
};

}  // namespace train::engine
