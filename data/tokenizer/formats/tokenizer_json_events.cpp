#include "data/tokenizer/formats/tokenizer_json_events.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "storage/files/untrusted_text.hpp"

namespace train::data {
namespace {

constexpr std::size_t kDocumentDepthLimit = 32;

/// Receives the events of nlohmann's SAX parser; returning false stops it with `defect` set.
class TokenizerEvents : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit TokenizerEvents(TokenizerDocument& document) : document_(document) {
    *document_.rest = nullptr;
  }

  bool null() override { return plain(nullptr); }
  bool boolean(bool value) override { return plain(value); }
  bool number_integer(number_integer_t value) override {
    return place_ == Place::piece ? score(static_cast<double>(value)) : plain(value);
  }
  bool number_float(number_float_t value, const string_t&) override {
    return place_ == Place::piece ? score(value) : plain(value);
  }
  bool binary(binary_t&) override { return stop("binary data"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (place_ == Place::piece) {
      return score(static_cast<double>(value));
    }
    if (place_ != Place::vocabulary) {
      return plain(value);
    }
    if (value >= kTokenIdLimit) {
      return stop(fmt::format("model.vocab gives {} the id {}; ids end at {}", storage::shown(key_),
                              value, kTokenIdLimit - 1));
    }
    return document_.vocabulary.add(key_, static_cast<std::uint32_t>(value)) ||
           stop(fmt::format("model.vocab has {} or its id {} twice", storage::shown(key_), value));
  }

  bool string(string_t& value) override {
    if (place_ == Place::merges) {
      return add_merge_line(document_.merges, value) ||
             stop(fmt::format("model.merges has {}, which is not two tokens",
                              storage::shown(value)));
    }
    if (place_ != Place::pair && place_ != Place::piece) {
      return plain(std::move(value));
    }
    if (pair_count_ < 2) {
      pair_[pair_count_] = std::move(value);
    }
    ++pair_count_;
    return true;
  }

  bool key(string_t& value) override {
    key_ = std::move(value);
    return true;
  }

  bool start_object(std::size_t) override {
    if (in_model("vocab")) {
      place_ = Place::vocabulary;
      return true;
    }
    return open(nlohmann::json::object());
  }

  bool start_array(std::size_t) override {
    if (place_ == Place::merges) {
      place_ = Place::pair;
      pair_count_ = 0;
      return true;
    }
    if (place_ == Place::pieces) {
      place_ = Place::piece;
      pair_count_ = 0;
      score_.reset();
      return true;
    }
    if (in_model("vocab")) {
      place_ = Place::pieces;
      return true;
    }
    if (in_model("merges")) {
      place_ = Place::merges;
      return true;
    }
    return open(nlohmann::json::array());
  }

  bool end_object() override {
    if (place_ == Place::vocabulary) {
      place_ = Place::rest;
      return true;
    }
    return close();
  }

  bool end_array() override {
    if (place_ == Place::piece) {
      place_ = Place::pieces;
      return add_piece();
    }
    if (place_ == Place::pieces) {
      place_ = Place::rest;
      return true;
    }
    if (place_ == Place::pair) {
      place_ = Place::merges;
      if (pair_count_ != 2) {
        return stop(fmt::format("model.merges has a list of {} tokens, not of two", pair_count_));
      }
      document_.merges.add(pair_[0], pair_[1]);
      return true;
    }
    if (place_ == Place::merges) {
      place_ = Place::rest;
      return true;
    }
    return close();
  }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    return stop(
        fmt::format("not JSON at byte {}: cut short or overwritten; fetch it again", position));
  }

  [[nodiscard]] const std::string& defect() const { return defect_; }

 private:
  enum class Place : std::uint8_t { rest, vocabulary, merges, pair, pieces, piece };

  bool score(double value) {
    if (score_) {
      return stop("model.vocab has a piece with two scores");
    }
    score_ = value;
    return true;
  }

  /// Adds an entry [text, score] of the vocabulary.
  bool add_piece() {
    const std::size_t id = document_.scores.size();
    if (pair_count_ != 1 || !score_) {
      return stop(fmt::format("model.vocab has a list at {} that is not a text and a score", id));
    }
    if (id >= kTokenIdLimit) {
      return stop(fmt::format("model.vocab has more than {} pieces", kTokenIdLimit));
    }
    document_.scores.push_back(*score_);
    return document_.vocabulary.add(pair_[0], static_cast<std::uint32_t>(id)) ||
           stop(fmt::format("model.vocab has {} twice", storage::shown(pair_[0])));
  }

  bool stop(std::string_view what) {
    defect_ = what;
    return false;
  }

  [[nodiscard]] bool in_model(std::string_view member) const {
    return place_ == Place::rest && open_.size() == 2 && model_open_ && key_ == member &&
           open_.back()->is_object();
  }

  /// Stores a value in the open list or object. Null if not allowed there.
  nlohmann::json* put(nlohmann::json value) {
    if (place_ != Place::rest) {
      stop(what_does_not_belong());
      return nullptr;
    }
    if (open_.empty()) {
      *document_.rest = std::move(value);
      return document_.rest.get();
    }
    nlohmann::json& parent = *open_.back();
    if (parent.is_array()) {
      parent.push_back(std::move(value));
      return &parent.back();
    }
    nlohmann::json& member = parent[key_];
    member = std::move(value);
    return &member;
  }

  [[nodiscard]] std::string what_does_not_belong() const {
    if (place_ == Place::vocabulary) {
      return fmt::format("model.vocab gives {} something that is not an id", storage::shown(key_));
    }
    return place_ == Place::pieces || place_ == Place::piece
               ? "model.vocab has something that is not a text and a score"
               : "model.merges has something that is not a text";
  }

  bool plain(nlohmann::json value) { return put(std::move(value)) != nullptr; }

  bool open(nlohmann::json value) {
    if (open_.size() == kDocumentDepthLimit) {
      return stop("brackets are nested deeper than in any tokenizer.json");
    }
    model_open_ = open_.size() == 1 ? key_ == "model" : model_open_;
    nlohmann::json* place = put(std::move(value));
    if (place == nullptr) {
      return false;
    }
    open_.push_back(place);
    return true;
  }

  bool close() {
    open_.pop_back();
    return true;
  }

  TokenizerDocument& document_;
  std::vector<nlohmann::json*>
      open_;  ///< Each is inside the one before, which does not grow meanwhile.
  std::string key_;
  std::string pair_[2];
  std::size_t pair_count_ = 0;
  std::optional<double> score_;
  Place place_ = Place::rest;
  bool model_open_ = false;  ///< The top-level member "model" is open.
  std::string defect_;
};

}  // namespace

void MergeList::add(std::string_view left, std::string_view right) {
  Place place{.begin = bytes_.size()};
  bytes_ += left;
  place.middle = bytes_.size();
  bytes_ += right;
  place.end = bytes_.size();
  places_.push_back(place);
}

std::vector<Bpe::MergeTexts> MergeList::texts() const {
  std::vector<Bpe::MergeTexts> texts;
  texts.reserve(places_.size());
  const std::string_view bytes = bytes_;
  for (const Place& place : places_) {
    texts.push_back({.left = bytes.substr(place.begin, place.middle - place.begin),
                     .right = bytes.substr(place.middle, place.end - place.middle)});
  }
  return texts;
}

bool add_merge_line(MergeList& merges, std::string_view line) {
  if (line.starts_with("#version")) {
    return true;
  }
  const std::size_t space = line.find(' ');
  if (space == std::string_view::npos || line.find(' ', space + 1) != std::string_view::npos) {
    return false;
  }
  merges.add(line.substr(0, space), line.substr(space + 1));
  return true;
}

Result<TokenizerDocument> read_tokenizer_document(std::string_view text) {
  TokenizerDocument document;
  document.rest = std::make_unique<nlohmann::json>();
  TokenizerEvents events(document);
  if (!nlohmann::json::sax_parse(text.begin(), text.end(), &events)) {
    return user_error(events.defect());
  }
  return document;
}

}  // namespace train::data
