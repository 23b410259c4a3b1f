from dspy import lm15 as lm15
from dspy import utils as utils
from dspy.adapters import Adapter as Adapter
from dspy.adapters import ChatAdapter as ChatAdapter
from dspy.adapters import JSONAdapter as JSONAdapter
from dspy.adapters import XMLAdapter as XMLAdapter
from dspy.adapters.types import Type as Type
from dspy.adapters.types.tool import Tool as Tool
from dspy.clients import LM as LM
from dspy.clients import BaseLM as BaseLM
from dspy.dsp.utils.settings import settings as settings
from dspy.evaluate import Evaluate as Evaluate
from dspy.predict import ChainOfThought as ChainOfThought
from dspy.predict import Parallel as Parallel
from dspy.predict import Predict as Predict
from dspy.primitives import Example as Example
from dspy.primitives import Module as Module
from dspy.primitives import Prediction as Prediction
from dspy.signatures import InputField as InputField
from dspy.signatures import OutputField as OutputField
from dspy.signatures import Signature as Signature
from dspy.teleprompt import COPRO as COPRO
from dspy.teleprompt import GEPA as GEPA
from dspy.teleprompt import SIMBA as SIMBA
from dspy.teleprompt import BetterTogether as BetterTogether
from dspy.teleprompt import BootstrapFewShot as BootstrapFewShot
from dspy.teleprompt import BootstrapFewShotWithRandomSearch as BootstrapFewShotWithRandomSearch
from dspy.teleprompt import BootstrapFinetune as BootstrapFinetune
from dspy.teleprompt import InferRules as InferRules
from dspy.teleprompt import LabeledFewShot as LabeledFewShot
from dspy.teleprompt import MIPROv2 as MIPROv2

__version__: str
context = settings.context
BootstrapRS = BootstrapFewShotWithRandomSearch
