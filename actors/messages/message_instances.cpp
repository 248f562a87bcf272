// The definitions that the lines at the ends of these headers declare.
#define TRAIN_INSTANCES template

#include "actors/messages/cluster_messages.hpp"
#include "actors/messages/collective_messages.hpp"
#include "actors/messages/command_messages.hpp"
#include "actors/messages/connect_messages.hpp"
#include "actors/messages/event_messages.hpp"
#include "actors/messages/lane_messages.hpp"
#include "actors/messages/save_messages.hpp"
#include "actors/messages/watch_messages.hpp"
