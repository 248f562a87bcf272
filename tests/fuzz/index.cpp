// Records of the index: lines "key=value", put into a store as they are, and each also read by
// itself. A journal record without its digest gets the one that continues the chain.
#include <algorithm>
#include <limits>
#include <utility>

#include "checkpoint/index/index_content.hpp"
#include "checkpoint/index/index_entry.hpp"
#include "checkpoint/index/step_journal.hpp"
#include "storage/files/digest.hpp"
#include "tests/fuzz/target.hpp"
#include "tests/support/disks/memory_store.hpp"

namespace train::fuzz {
namespace {

using namespace checkpoint;

void require_round_trips(std::string_view text) {
  if (const auto entry = parse_entry(text)) {
    const auto again = parse_entry(entry_text(*entry));
    require(again && entry_text(*again) == entry_text(*entry), "an entry is written and read");
    require(again->step == entry->step && again->directory == entry->directory &&
                again->manifest_digest == entry->manifest_digest,
            "an entry stays the same");
  }
  if (const auto step = parse_step(1, text)) {
    const auto again = parse_step(1, step_text(*step));
    require(again && step_text(*again) == step_text(*step), "a step is written and read");
  }
  if (const auto digests = parse_digests(text)) {
    require(parse_digests(digests_text(*digests)) == digests, "digests are written and read");
  }
  if (const auto event = parse_event(text)) {
    const auto again = parse_event(event_text(*event));
    require(again && event_text(*again) == event_text(*event), "an event is written and read");
  }
}

/// Keys are "<prefix><number of any length>", so that mutations find them.
std::pair<std::string, std::string> record_of(std::string_view line) {
  const std::size_t split = line.find('=');
  std::string key(line.substr(0, split));
  std::string value(split == std::string_view::npos ? "" : line.substr(split + 1));
  const std::size_t digits = key.find('/') + 1;
  if (digits != 0 && key.size() - digits < 20) {
    key.insert(digits, std::string(20 - (key.size() - digits), '0'));
  }
  return {std::move(key), std::move(value)};
}

void fill(test::MemoryStore& store, std::string_view input) {
  std::string digest;
  for (const std::string_view line : cut(input, '\n')) {
    auto [key, value] = record_of(line);
    if (key.starts_with(index_keys::kJournal)) {
      digest = storage::digest_text(digest + "\n" + value);
      value += "\n" + digest;
    }
    store.content[std::move(key)] = std::move(value);
  }
}

void run(std::string_view input) {
  for (const std::string_view line : cut(input, '\n')) {
    const std::size_t split = line.find('=');
    if (split != std::string_view::npos) {
      require_round_trips(line.substr(split + 1));
      require_round_trips(line.substr(std::min(split + 2, line.size())));
    }
  }
  test::MemoryStore store;
  fill(store, input);
  const IndexContent content = read_index_content(store, "2:x");
  std::int64_t last = std::numeric_limits<std::int64_t>::min();
  for (const IndexEntry& entry : content.entries.all()) {
    require(entry.step > last || &entry == content.entries.all().data(), "entries are in order");
    last = entry.step;
    require(content.entries.find(entry.step) == &entry, "entries are found");
  }
  require(!content.unreadable, "a store in memory can be read");
  require(read_step_journal(store) && read_events(store), "journals are read");
}

std::vector<std::string> seeds() {
  const IndexEntry entry{.step = 10,
                         .directory = "step-00000010",
                         .manifest_digest = storage::digest_text("m"),
                         .recorded_s = 1'800'000'000,
                         .size_bytes = 12345,
                         .tokens = 40960,
                         .ranks = 2,
                         .validation_loss = 2.5};
  IndexEntry next = entry;
  next.step = 20;
  next.directory = "step-00000020";
  next.rebuilt = true;
  const std::string old =
      R"(+{"step":10,"directory":"step-00000010","manifest_digest":"d","recorded_s":5})";
  const std::string event = event_text({5, "saved", "step 10"});
  const std::string step = step_text({7, 2.5, 1.0, 1e-3, 700, {1, ~0ULL}});
  return {fmt::format("journal/1=+{}\njournal/2=+{}\njournal/3=-{}\nnote/30=writing 5\n"
                      "loss/30=4004000000000000\nstep/7={}\ndigest/7={}\nevent/1={}\n",
                      entry_text(entry), entry_text(next), entry_text(entry), step,
                      digests_text({5, 0}), event),
          fmt::format("journal/1={}\n", old)};
}

}  // namespace

Target index_target() {
  return {"index",
          run,
          seeds,
          {"journal/",
           "note/",
           "loss/",
           "step/",
           "digest/",
           "event/",
           "=+",
           "=-",
           "\t",
           "committed",
           "retired",
           "writing",
           "rebuilt",
           "\"step\":",
           "\"directory\":\"",
           "\\t",
           "\\u0000",
           "9223372036854775807",
           "-9223372036854775808",
           "18446744073709551615"}};
}

}  // namespace train::fuzz
