#include "checkpoint/index/index_content.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "checkpoint/index/text_fields.hpp"
#include "storage/files/digest.hpp"

namespace train::checkpoint {
namespace {

constexpr std::size_t kKeyDigits = 20;

std::string link_digest(std::string_view digest_before, std::string_view body) {
  std::string text;
  text.reserve(digest_before.size() + 1 + body.size());
  text.append(digest_before).append("\n").append(body);
  return storage::digest_text(text);
}

struct Head {
  std::int64_t sequence = -1;  // Not part of a chain.
  std::string_view digest;
};

Head parse_head(std::string_view text) {
  const std::size_t split = text.find(':');
  const auto sequence = number_in<std::int64_t>(text.substr(0, split));
  if (split == std::string_view::npos || !sequence || *sequence < 0) {
    return {};
  }
  return {*sequence, text.substr(split + 1)};
}

/// Adds one journal record to `content`; returns false at the first inconsistent one.
bool follow(IndexContent& content, std::string_view key, std::string_view record) {
  const std::int64_t due = content.sequence + 1;
  const std::size_t split = record.find('\n');
  const std::string_view body = record.substr(0, split);
  std::string link = link_digest(content.digest, body);
  if (index_keys::number_of(index_keys::kJournal, key) != due || body.empty() ||
      split == std::string_view::npos || record.substr(split + 1) != link) {
    content.damage = fmt::format("journal entry {} does not continue the chain", due);
    return false;
  }
  auto entry = parse_entry(body.substr(1));
  if (!entry || (body.front() != '+' && body.front() != '-')) {
    content.damage = fmt::format("journal entry {} is unreadable", due);
    return false;
  }
  content.sequence = due;
  content.digest = std::move(link);
  body.front() == '+' ? content.entries.put(*std::move(entry)) : content.entries.erase(entry->step);
  return true;
}

}  // namespace

std::string index_keys::of(std::string_view prefix, std::int64_t number) {
  return fmt::format("{}{:0{}}", prefix, number, kKeyDigits);
}

std::optional<std::int64_t> index_keys::number_of(std::string_view prefix, std::string_view key) {
  return key.size() == prefix.size() + kKeyDigits && key.starts_with(prefix)
             ? number_in<std::int64_t>(key.substr(prefix.size()))
             : std::nullopt;
}

void EntryList::put(IndexEntry entry) {
  const auto at =
      entries_.empty() || entries_.back().step < entry.step
          ? entries_.end()
          : std::lower_bound(entries_.begin(), entries_.end(), entry.step,
                             [](const IndexEntry& e, std::int64_t step) { return e.step < step; });
  if (at != entries_.end() && at->step == entry.step) {
    *at = std::move(entry);
  } else {
    entries_.insert(at, std::move(entry));
  }
}

void EntryList::erase(std::int64_t step) {
  if (const IndexEntry* entry = find(step)) {
    entries_.erase(entries_.begin() + (entry - entries_.data()));
  }
}

const IndexEntry* EntryList::find(std::int64_t step) const {
  const auto at =
      std::lower_bound(entries_.begin(), entries_.end(), step,
                       [](const IndexEntry& e, std::int64_t wanted) { return e.step < wanted; });
  return at != entries_.end() && at->step == step ? &*at : nullptr;
}

ChainLink chain_link(std::string_view digest_before, const IndexChange& change) {
  const std::string body = (change.present ? '+' : '-') + entry_text(change.entry);
  std::string digest = link_digest(digest_before, body);
  return {.record = fmt::format("{}\n{}", body, digest), .digest = std::move(digest)};
}

IndexContent read_index_content(storage::KvStore& store, std::string_view wanted_head) {
  IndexContent content;
  const Head wanted = parse_head(wanted_head);
  content.knows_head = wanted_head.empty() || wanted.sequence == 0;
  const auto read = [&](std::string_view prefix, const storage::KvStore::Visitor& visitor) {
    const Status status = store.scan(prefix, visitor);
    if (!status && !content.unreadable) {
      content.unreadable = status.error();
    }
  };
  read(index_keys::kJournal, [&](std::string_view key, std::string_view value) {
    const bool fits = follow(content, key, value);
    content.knows_head = content.knows_head || (fits && content.sequence == wanted.sequence &&
                                                content.digest == wanted.digest);
    return fits;
  });
  read(index_keys::kNote, [&](std::string_view key, std::string_view value) {
    const auto step = index_keys::number_of(index_keys::kNote, key);
    const auto state = state_of(next_field(value));
    if (step && state) {
      content.notes[*step] = {*state, number_in<std::int64_t>(value).value_or(0)};
    }
    return true;
  });
  read(index_keys::kLoss, [&](std::string_view key, std::string_view value) {
    const auto step = index_keys::number_of(index_keys::kLoss, key);
    const auto loss = double_of(value);
    if (step && loss) {
      content.losses[*step] = *loss;
    }
    return true;
  });
  return content;
}

std::string event_text(const EventRecord& event) {
  std::string text = fmt::format("{} {} {}", event.logged_s, event.kind, event.text);
  std::replace_if(
      text.begin(), text.end(), [](char letter) { return letter == '\n' || letter == '\r'; }, ' ');
  return text;
}

std::optional<EventRecord> parse_event(std::string_view text) {
  if (text.find_first_of("\r\n") != std::string_view::npos) {
    return std::nullopt;  // Not in the format of event_text().
  }
  const auto logged_s = number_in<std::int64_t>(next_field(text));
  const std::string_view kind = next_field(text);
  return logged_s && !kind.empty()
             ? std::optional(EventRecord{*logged_s, std::string(kind), std::string(text)})
             : std::nullopt;
}

Result<std::vector<EventRecord>> read_events(storage::KvStore& store) {
  std::vector<EventRecord> events;
  TRAIN_RETURN_IF_ERROR(
      store.scan(index_keys::kEvent, [&](std::string_view, std::string_view text) {
        if (auto event = parse_event(text)) {
          events.push_back(*std::move(event));
        }
        return true;
      }));
  return events;
}

}  // namespace train::checkpoint
