from typing import Any

CommonParams: Any
Server: Any
common_speculative_type: Any
llama_flash_attn_type: Any
