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
        for layer in self.model.layers:  # Lists of parameters, which _init_weights() is not called for.
            rates, skips = layer.mamba.A_log[0], layer.mamba.D[0]
            with torch.no_grad():
                rates.copy_(torch.arange(1.0, rates.shape[1] + 1.0).log().expand_as(rates))
                skips.fill_(1.0)
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


transformers.AutoConfig.register("hymba", HymbaConfig)
transformers.AutoModelForCausalLM.register(HymbaConfig, HymbaForCausalLM)
