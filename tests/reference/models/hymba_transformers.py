"""hymba_model.py's Hymba as a model of transformers, which then reads and writes its directories as those of others.
Importing this file registers it.
"""

import torch
import transformers
from torch import nn

from hymba_model import Hymba, Norm


class HymbaConfig(transformers.PreTrainedConfig):
    model_type = "hymba"


class HymbaForCausalLM(transformers.PreTrainedModel):
    config_class = HymbaConfig
    base_model_prefix = "model"
    _tied_weights_keys = {"lm_head.weight": "model.embed_tokens.weight"}

    def __init__(self, config):
        super().__init__(config)
        made = Hymba({**config.to_dict(), "tie_word_embeddings": False})
        self.model, self.lm_head, self.prefix = made.model, made.lm_head, made.prefix
        self.post_init()

    forward = Hymba.forward

    def get_input_embeddings(self):
        return self.model.embed_tokens

    def get_output_embeddings(self):
        return self.lm_head

    @torch.no_grad()
    def _init_weights(self, module):
        super()._init_weights(module)
        if isinstance(module, Norm):
            nn.init.ones_(module.weight)
        if hasattr(module, "memory_tokens"):
            nn.init.normal_(module.memory_tokens)
        if hasattr(module, "A_log"):
            states = torch.arange(1, module.A_log[0].shape[1] + 1, dtype=torch.float32)
            module.A_log[0].copy_(states.log().expand_as(module.A_log[0]))
            nn.init.ones_(module.D[0])


transformers.AutoConfig.register("hymba", HymbaConfig)
transformers.AutoModelForCausalLM.register(HymbaConfig, HymbaForCausalLM)
