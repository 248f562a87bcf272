// Converts SentencePiece models to tokenizer parts.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "data/tokenizer/formats/sentencepiece/sentencepiece_model.hpp"
#include "data/tokenizer/formats/tokenizer_files.hpp"
#include "storage/files/untrusted_text.hpp"

namespace train::data {
namespace {

using Model = SentencePieceModel;
using PieceType = Model::PieceType;

Result<Vocabulary> vocabulary_of(const Model& model) {
  Vocabulary vocabulary;
  for (std::uint32_t id = 0; id < model.pieces.size(); ++id) {
    if (!vocabulary.add(model.pieces[id].text, id)) {
      return user_error(
          fmt::format("piece {} appears twice", storage::shown(model.pieces[id].text)));
    }
  }
  return vocabulary;
}

/// The highest score merges first; equal scores have equal ranks, so the leftmost merges first.
std::vector<std::uint32_t> ranks_of(const Model& model) {
  std::vector<float> scores;
  for (const Model::Piece& piece : model.pieces) {
    if (piece.type == PieceType::normal) {
      scores.push_back(piece.score);
    }
  }
  std::sort(scores.begin(), scores.end(), std::greater<>());
  scores.erase(std::unique(scores.begin(), scores.end()), scores.end());
  std::vector<std::uint32_t> ranks;
  for (const Model::Piece& piece : model.pieces) {
    const auto place =
        std::lower_bound(scores.begin(), scores.end(), piece.score, std::greater<>());
    ranks.push_back(piece.type == PieceType::normal
                        ? static_cast<std::uint32_t>(place - scores.begin())
                        : PairTable::kNoRank);
  }
  return ranks;
}

Result<Bpe> bpe_of(const Model& model, Vocabulary vocabulary) {
  BpeOptions options;
  options.byte_fallback = model.byte_fallback;
  options.fuse_unk = true;
  for (const Model::Piece& piece : model.pieces) {
    if (piece.type == PieceType::unused) {
      return user_error(fmt::format("piece {} is marked as unused, which BPE does not know",
                                    storage::shown(piece.text)));
    }
    if (piece.type == PieceType::unknown) {
      options.unk_token = std::string(piece.text);
    }
  }
  return Bpe::from_ranks(std::move(vocabulary), ranks_of(model), std::move(options));
}

/// User-defined pieces beat others by a score above 0, longer ones beat shorter ones; an unknown
/// character scores below any piece. All in floats, as in the reference.
Unigram unigram_of(const Model& model, Vocabulary vocabulary) {
  constexpr float unknown_penalty = 10.0F;
  constexpr double own_score_of_a_byte = 0.1;
  UnigramOptions options{.byte_fallback = model.byte_fallback};
  float lowest = std::numeric_limits<float>::max();
  std::vector<Unigram::Piece> pieces;
  for (const Model::Piece& piece : model.pieces) {
    const bool own = piece.type == PieceType::user_defined;
    const double own_score = own_score_of_a_byte * static_cast<double>(piece.text.size() - 1);
    pieces.push_back({.score = own ? static_cast<float>(own_score) : piece.score,
                      .found = own || piece.type == PieceType::normal});
    if (piece.type == PieceType::normal) {
      lowest = std::min(lowest, piece.score);
    } else if (piece.type == PieceType::unknown) {
      options.unknown = static_cast<std::uint32_t>(pieces.size() - 1);
    }
  }
  options.unknown_score = lowest - unknown_penalty;
  return {std::move(vocabulary), std::move(pieces), options};
}

Result<WordModel> word_model(const Model& model) {
  auto vocabulary = TRAIN_TRY(vocabulary_of(model));
  if (model.kind == Model::Kind::unigram) {
    return WordModel(unigram_of(model, std::move(vocabulary)));
  }
  if (model.kind != Model::Kind::bpe) {
    return user_error(
        "a SentencePiece model of whole words or of single characters; BPE and Unigram are read");
  }
  auto bpe = TRAIN_TRY(bpe_of(model, std::move(vocabulary)));
  return WordModel(std::move(bpe));
}

/// Control pieces, never produced from text, and user-defined ones, matched before merging; a
/// Unigram model matches those itself.
std::vector<AddedToken> added_tokens(const Model& model) {
  std::vector<AddedToken> tokens;
  for (std::uint32_t id = 0; id < model.pieces.size(); ++id) {
    const Model::Piece& piece = model.pieces[id];
    if (piece.type == PieceType::control) {
      tokens.push_back(
          {.content = std::string(piece.text), .id = id, .searched = false, .special = true});
    } else if (piece.type == PieceType::user_defined) {
      tokens.push_back({.content = std::string(piece.text),
                        .id = id,
                        .normalized = true,
                        .searched = model.kind == Model::Kind::bpe});
    }
  }
  return tokens;
}

Normalizer normalizer_of(SentencePieceRules rules) {
  return Normalizer(
      {SentencePieceStep{std::make_shared<const SentencePieceRules>(std::move(rules))}});
}

/// In rendered text control pieces and the unknown one are matched too, besides user-defined ones.
/// For BPE transformers leaves the text between them unchanged: line feeds stay.
Result<RenderedRules> rendered_rules(const Model& model, const SentencePieceRules& of_model,
                                     bool prefix_each) {
  const SentencePieceRules rules =
      model.kind == Model::Kind::bpe ? of_model.spaces_alone() : of_model;
  std::vector<AddedToken> tokens;
  for (std::uint32_t id = 0; id < model.pieces.size(); ++id) {
    const Model::Piece& piece = model.pieces[id];
    if (piece.type == PieceType::control || piece.type == PieceType::unknown ||
        piece.type == PieceType::user_defined) {
      tokens.push_back({.content = std::string(piece.text),
                        .id = id,
                        .special = piece.type != PieceType::user_defined});
    }
  }
  auto controls = TRAIN_TRY(AddedTokens::make(std::move(tokens), Normalizer()));
  return RenderedRules{.controls = std::move(controls),
                       .with_prefix = normalizer_of(rules),
                       .without_prefix = normalizer_of(rules.without_prefix()),
                       .prefix_each = prefix_each};
}

std::optional<std::uint32_t> control_id(const Model& model, std::string_view text) {
  for (std::uint32_t id = 0; id < model.pieces.size(); ++id) {
    if (model.pieces[id].type == PieceType::control && model.pieces[id].text == text) {
      return id;
    }
  }
  return std::nullopt;
}

SpecialFrame frame_of(const Model& model, const FrameWishes& wishes) {
  SpecialFrame frame;
  const auto begin = control_id(model, model.begin_text);
  if (begin && wishes.begin.value_or(model.kind == Model::Kind::bpe)) {
    frame.before.push_back(*begin);
  }
  const auto end = control_id(model, model.end_text);
  if (end && wishes.end.value_or(false)) {
    frame.after.push_back(*end);
  }
  return frame;
}

SentencePieceRules::Settings settings_of(const Model& model) {
  SentencePieceRules::Settings settings = model.rules;
  for (const Model::Piece& piece : model.pieces) {
    if (piece.type == PieceType::user_defined) {
      settings.user_defined.push_back(piece.text);
    }
  }
  return settings;
}

TokenDecoder decoder_of(const Model& model) {
  const auto unknown =
      std::find_if(model.pieces.begin(), model.pieces.end(),
                   [](const Model::Piece& piece) { return piece.type == PieceType::unknown; });
  const SentencePieceRules::Settings& rules = model.rules;
  return TokenDecoder(
      {SentencePieceDecode{.unknown = std::string(unknown->text),
                           .surface = std::string(model.unknown_surface),
                           .has_bytes = model.byte_fallback,
                           .drop_first = rules.add_dummy_prefix || rules.remove_extra_whitespaces,
                           .drop_leading = rules.remove_extra_whitespaces}});
}

}  // namespace

Result<TokenizerParts> read_sentencepiece_file(std::string_view bytes, const FrameWishes& wishes) {
  const auto model = TRAIN_TRY(parse_sentencepiece_model(bytes));
  auto words = TRAIN_TRY(word_model(model));
  auto rules = TRAIN_TRY(SentencePieceRules::make(settings_of(model)));
  // Texts of pieces are already in normal form.
  auto added = TRAIN_TRY(AddedTokens::make(added_tokens(model), Normalizer()));
  auto rendered = TRAIN_TRY(rendered_rules(model, rules, wishes.legacy));
  std::vector<std::string> notes;
  if (model.has_denormalizer) {
    notes.emplace_back("the file's denormalizer is left out");
  }
  return TokenizerParts{.added = std::move(added),
                        .normalizer = normalizer_of(std::move(rules)),
                        .pre_tokenizer = PreTokenizer(),
                        .model = std::move(words),
                        .frame = frame_of(model, wishes),
                        .rendered = std::move(rendered),
                        .decoder = decoder_of(model),
                        .end_of_text = control_id(model, model.end_text),
                        .notes = std::move(notes)};
}

}  // namespace train::data
